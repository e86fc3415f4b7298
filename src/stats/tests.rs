//! Known values, and sessions of known rate: how often each rule is wrong.

use super::*;

#[track_caller]
fn near(value: f64, known: f64, within: f64) {
    assert!((value - known).abs() <= within, "{value} is not {known}");
}

#[test]
fn exact_bounds_are_those_of_the_tables() {
    // Clopper and Pearson's own example is 3 of 10; the others are from R's binom.test.
    let (low, high) = interval(10, 3, 0.95);
    near(low, 0.066_739, 1e-5);
    near(high, 0.652_453, 1e-5);
    near(upper_bound(100, 1, 0.95), 0.046_56, 1e-4);
    near(upper_bound(300, 1, 0.95), 0.015_7, 1e-4);
    near(upper_bound(50, 3, 0.95), 0.147_8, 1e-3);
    near(upper_bound(299, 0, 0.95), 0.009_97, 1e-4);
    near(lower_bound(3, 3, 0.95), 0.368_4, 1e-4);
    near(upper_bound(100_000, 0, 0.95), 2.995_7e-5, 1e-8);
    assert_eq!((lower_bound(5, 0, 0.9), upper_bound(5, 5, 0.9), upper_bound(0, 0, 0.9)), (0.0, 1.0, 1.0));
}

#[test]
fn the_runs_that_a_claim_needs_are_those_of_the_formula() {
    // n >= ln(1-c)/ln(1-p).
    for (rate, confidence, runs) in [
        (0.2, 0.9, 11),
        (0.1, 0.95, 29),
        (0.05, 0.95, 59),
        (0.01, 0.95, 299),
        (0.01, 0.99, 459),
        (0.001, 0.95, 2995),
    ] {
        assert_eq!(clean_runs_needed(rate, confidence), Some(runs), "{rate} at {confidence}");
    }
    assert_eq!(clean_runs_needed(0.0, 0.95), None);
}

#[test]
fn the_anytime_bound_asks_for_more_runs_than_the_fixed_one() {
    for (rate, runs) in [(0.1, 39), (0.05, 88), (0.02, 247), (0.01, 534)] {
        assert!(anytime_upper_bound(runs, 0, 0.95) <= rate, "{rate}");
        assert!(anytime_upper_bound(runs - 2, 0, 0.95) > rate, "{rate}");
    }
    assert_eq!(anytime_upper_bound(0, 0, 0.95), 1.0);
    assert_eq!(anytime_upper_bound(4, 4, 0.95), 1.0);
}

#[test]
fn the_sequential_test_decides_where_its_thresholds_say() {
    let test = SequentialTest { good: 0.001, bad: 0.05, error: 0.05 };
    let after = test.shortest();
    assert_eq!(test.decide(after, 0), Some(Decision::Good));
    assert_eq!(test.decide(after - 1, 0), None);
    assert_eq!((test.decide(1, 1), test.decide(after, 1)), (Some(Decision::Bad), None));
    assert_eq!(test.decide(0, 0), None);
}

#[test]
fn fishers_test_is_exact() {
    // Fisher's tea: 3 of 4 against 1 of 4 is 34 of 70 tables, two-sided.
    near(fisher((4, 3), (4, 1)), 34.0 / 70.0, 1e-9);
    near(fisher((8, 8), (8, 0)), 2.0 / 12_870.0, 1e-9);
    near(fisher((20, 0), (20, 0)), 1.0, 1e-9);
}

#[test]
fn holms_correction_keeps_the_order() {
    let corrected = holm(&[0.04, 0.01, 0.5]);
    near(corrected[0], 0.08, 1e-12);
    near(corrected[1], 0.03, 1e-12);
    near(corrected[2], 0.5, 1e-12);
}

#[test]
fn failures_in_one_block_are_seen_as_clustered_and_alternating_ones_are_not() {
    assert!(clustering(50, 50, 2).unwrap() < 1e-6);
    assert!(clustering(50, 50, 51).unwrap() > 0.3);
    assert_eq!(clustering(500, 3, 4), None);
}

/// Numbers that look random and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn fails(&mut self, per_million: u64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1_000_000 < per_million
    }
}

const SESSIONS: u64 = 2000;
const RATES: [u64; 7] = [500_000, 200_000, 100_000, 50_000, 20_000, 10_000, 2_000];

/// How often a rule may be wrong in so many sessions where it promises one in twenty: three standard deviations above.
const WRONG_AT_MOST: u64 = 100 + 29;

#[test]
fn the_fixed_bound_is_wrong_no_more_often_than_it_promises() {
    for per_million in RATES {
        let (mut random, rate) = (Random(per_million), real(per_million) / 1e6);
        for runs in [20, 100, 300] {
            // A bound depends on the count alone, of which there are few.
            let bounds: Vec<f64> = (0..=runs).map(|failed| upper_bound(runs, failed, 0.95)).collect();
            let wrong = (0..SESSIONS).filter(|_| {
                let failed = (0..runs).filter(|_| random.fails(per_million)).count();
                bounds[failed] < rate
            });
            let wrong = u64::try_from(wrong.count()).unwrap();
            assert!(wrong <= WRONG_AT_MOST, "{wrong} of {SESSIONS} at {rate} with {runs} runs");
        }
    }
}

/// The bound is looked at after every run, and the worst look counts.
#[test]
fn the_anytime_bound_is_wrong_no_more_often_than_it_promises_even_at_its_worst_moment() {
    for per_million in RATES {
        let (mut random, rate) = (Random(per_million + 1), real(per_million) / 1e6);
        // Rather than the bound, its condition: the evidence against the true rate, which is the same and quick.
        let step = |n: u64, k: u64| {
            ln_beta(PRIOR.0 + real(k), PRIOR.1 + real(n - k))
                - ln_beta(PRIOR.0, PRIOR.1)
                - weighted_ln(real(k), rate)
                - weighted_ln(real(n - k), 1.0 - rate)
        };
        let wrong = (0..SESSIONS).filter(|_| {
            let mut k = 0;
            (1..=400).any(|n| {
                k += u64::from(random.fails(per_million));
                let excluded = real(k) / real(n) < rate && step(n, k) >= -(0.05_f64).ln();
                if excluded && n % 50 == 0 {
                    assert!(anytime_upper_bound(n, k, 0.95) <= rate + 1e-9);
                }
                excluded
            })
        });
        let wrong = wrong.count();
        assert!(wrong <= 129, "{wrong} of {SESSIONS} at {rate}");
    }
}

#[test]
fn the_sequential_test_is_wrong_no_more_often_than_it_promises() {
    for bad in [10_000, 50_000, 100_000] {
        let test = SequentialTest { good: real(bad) / 1e7, bad: real(bad) / 1e6, error: 0.05 };
        for (per_million, wrong_decision) in [
            (bad, Decision::Good),
            (bad * 2, Decision::Good),
            (bad / 10, Decision::Bad),
            (bad / 50, Decision::Bad),
        ] {
            let mut random = Random(per_million + 2);
            let wrong = (0..SESSIONS).filter(|_| {
                let mut k = 0;
                let decided = (1..=20_000_u64).find_map(|n| {
                    k += u64::from(random.fails(per_million));
                    test.decide(n, k)
                });
                decided == Some(wrong_decision)
            });
            let wrong = u64::try_from(wrong.count()).unwrap();
            assert!(wrong <= WRONG_AT_MOST, "{wrong} of {SESSIONS} at {per_million} against {bad}");
        }
    }
}

/// A session that shows `m` passes in a row says `fixed`; with the old rate unchanged it must do so rarely.
#[test]
fn an_unchanged_rate_is_called_fixed_no_more_often_than_promised() {
    for (runs, failed, per_million) in [(100, 4, 40_000), (50, 25, 500_000), (300, 6, 20_000)] {
        let needed = clean_runs_needed(lower_bound(runs, failed, 0.9), 0.95).unwrap();
        let mut random = Random(per_million + 3);
        let wrong = (0..SESSIONS).filter(|_| (0..needed).all(|_| !random.fails(per_million))).count();
        assert!(wrong <= 129, "{wrong} of {SESSIONS}: {needed} runs for {failed} of {runs}");
    }
}

/// The rule by which a cause is named: ten runs of each of two conditions, ten more unless those leave nothing open, and
/// chance doubled for looking twice.
#[test]
fn conditions_that_do_not_differ_are_called_different_no_more_often_than_promised() {
    for per_million in RATES {
        let mut random = Random(per_million);
        let wrong = (0..SESSIONS).filter(|_| {
            let (mut one, mut other) = (0, 0);
            for look in [10, 20] {
                for _ in 0..10 {
                    one += u64::from(random.fails(per_million));
                    other += u64::from(random.fails(per_million));
                }
                if one.abs_diff(other) == look || look == 20 {
                    return 2.0 * fisher((look, one), (look, other)) < 0.01;
                }
            }
            false
        });
        let wrong = wrong.count();
        // One in a hundred, and three standard deviations.
        assert!(wrong <= 20 + 13, "{wrong} of {SESSIONS} at {per_million}");
    }
}
