//! Bounds and tests for the rate at which a check fails, from `failed` of `runs` independent runs. Arithmetic only: what is
//! run, and what is said of it, is decided elsewhere.
//!
//! Three kinds of statement, each with its own promise:
//!
//! - a *fixed number* of runs, settled before the first: Clopper and Pearson's exact bounds (Biometrika 26, 1934);
//! - a *sequential test* between a good and a bad rate, looked at after each run: Wald's likelihood ratio with thresholds
//!   `1/error` and `error`, for which Ville's inequality bounds each error without approximation;
//! - an *anytime-valid* bound, which holds at all times at once, however often and for whatever reason one stops: the rates
//!   at which a mixture of likelihoods has not grown beyond `1/error` (Robbins, Ann. Math. Statist. 41, 1970).
#![forbid(unsafe_code)]

/// The mixture behind the anytime-valid bound: a Beta distribution over rates, most of its mass near zero.
const PRIOR: (f64, f64) = (0.5, 5.0);

/// Halvings by which a bound is found; after so many the interval is narrower than a `f64` can tell.
const HALVINGS: u32 = 80;

/// Counts as real numbers. Beyond 2^32 runs a bound no longer changes in any digit that is shown.
#[must_use]
pub fn real(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The one-sided upper bound: with at least this confidence the rate is no higher. For a number of runs that was settled
/// before the first.
#[must_use]
pub fn upper_bound(runs: u64, failed: u64, confidence: f64) -> f64 {
    let (n, k) = (real(runs), real(failed));
    if failed >= runs {
        return 1.0;
    }
    find(0.0, 1.0, |rate| incomplete_beta(k + 1.0, n - k, rate) < confidence)
}

/// The one-sided lower bound: with at least this confidence the rate is no lower.
#[must_use]
pub fn lower_bound(runs: u64, failed: u64, confidence: f64) -> f64 {
    let (n, k) = (real(runs), real(failed));
    if failed == 0 {
        return 0.0;
    }
    find(0.0, 1.0, |rate| incomplete_beta(k, n - k + 1.0, rate) < 1.0 - confidence)
}

/// The two-sided interval: with at least this confidence the rate is in it.
#[must_use]
pub fn interval(runs: u64, failed: u64, confidence: f64) -> (f64, f64) {
    let each = f64::midpoint(1.0, confidence);
    (lower_bound(runs, failed, each), upper_bound(runs, failed, each))
}

/// The upper bound that may be read at any time, over any number of sessions, without lying.
#[must_use]
pub fn anytime_upper_bound(runs: u64, failed: u64, confidence: f64) -> f64 {
    if failed >= runs {
        return 1.0;
    }
    let (n, k, (a, b)) = (real(runs), real(failed), PRIOR);
    let mixed = ln_beta(a + k, b + n - k) - ln_beta(a, b);
    let limit = -(1.0 - confidence).ln();
    let evidence = |rate: f64| mixed - weighted_ln(k, rate) - weighted_ln(n - k, 1.0 - rate);
    find(k / n, 1.0, |rate| evidence(rate) < limit)
}

/// How many runs in a row must pass before the rate is known to be below `rate` with this confidence; `None` where no
/// number of runs that can be counted is enough.
#[must_use]
pub fn clean_runs_needed(rate: f64, confidence: f64) -> Option<u64> {
    let enough = |runs: u64| (1.0 - rate).powf(real(runs)) <= 1.0 - confidence;
    let (mut low, mut high) = (0_u64, u64::from(u32::MAX));
    if !enough(high) {
        return None;
    }
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// What a sequential test has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The rate is below the bad one.
    Good,
    /// The rate is above the good one.
    Bad,
}

/// A test between two rates that may be looked at after each run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SequentialTest {
    /// A rate that is good enough.
    pub good: f64,
    /// A rate that is not to be accepted; higher than `good`.
    pub bad: f64,
    /// Probability of each wrong decision, at most.
    pub error: f64,
}

impl SequentialTest {
    /// What can be said after so many runs, if anything.
    #[must_use]
    pub fn decide(&self, runs: u64, failed: u64) -> Option<Decision> {
        let (k, passed) = (real(failed), real(runs.saturating_sub(failed)));
        let for_bad = k * (self.bad / self.good).ln() + passed * ((1.0 - self.bad) / (1.0 - self.good)).ln();
        let limit = -self.error.ln();
        if for_bad >= limit {
            Some(Decision::Bad)
        } else if for_bad <= -limit {
            Some(Decision::Good)
        } else {
            None
        }
    }

    /// Runs until the test decides for `Good` if all pass.
    #[must_use]
    pub fn shortest(&self) -> u64 {
        let (mut low, mut high) = (0_u64, u64::from(u32::MAX));
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if self.decide(middle, 0) == Some(Decision::Good) { high = middle } else { low = middle }
        }
        high
    }
}

/// The probability that independent outcomes cluster in time as much as these do or more (Wald and Wolfowitz's test of
/// runs, one-sided, in the normal approximation): `stretches` is the number of unbroken stretches of one outcome.
/// `None` where there are too few of either for the approximation.
#[must_use]
pub fn clustering(passed: u64, failed: u64, stretches: u64) -> Option<f64> {
    if passed < 10 || failed < 10 {
        return None;
    }
    let (one, other) = (real(passed), real(failed));
    let all = one + other;
    let expected = 2.0 * one * other / all + 1.0;
    let variance = (expected - 1.0) * (expected - 2.0) / (all - 1.0);
    // Half a stretch is the correction for continuity.
    Some(normal_below((real(stretches) + 0.5 - expected) / variance.sqrt()))
}

/// Fisher's exact test, two-sided: the probability of tables as unlikely as this one or more, where both conditions have
/// the same rate. Each pair is runs and failures.
#[must_use]
pub fn fisher(one: (u64, u64), other: (u64, u64)) -> f64 {
    let ((n, k), (m, l)) = (one, other);
    let failures = k + l;
    let ln_weight = |k: u64| ln_choose(n, k) + ln_choose(m, failures - k);
    let seen = ln_weight(k);
    let total = ln_choose(n + m, failures);
    let (from, to) = (failures.saturating_sub(m), failures.min(n));
    let as_unlikely = (from..=to).map(ln_weight).filter(|weight| *weight <= seen + 1e-9);
    as_unlikely.map(|weight| (weight - total).exp()).sum::<f64>().min(1.0)
}

/// Holm's correction: each probability as it counts among so many, in the order given.
#[must_use]
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|one, other| probabilities[*one].total_cmp(&probabilities[*other]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut least = 0.0_f64;
    for (rank, index) in order.iter().enumerate() {
        let left = u64::try_from(probabilities.len() - rank).unwrap_or(u64::MAX);
        least = least.max((real(left) * probabilities[*index]).min(1.0));
        corrected[*index] = least;
    }
    corrected
}

/// The largest value between two for which `holds` is still true, where it is true up to some point only.
fn find(low: f64, high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (low, high);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    // The upper end, so that a bound is never told lower than it is.
    high
}

/// `count * ln(rate)`, which is nothing where the count is.
fn weighted_ln(count: f64, rate: f64) -> f64 {
    if count == 0.0 { 0.0 } else { count * rate.ln() }
}

fn ln_choose(n: u64, k: u64) -> f64 {
    ln_gamma(real(n) + 1.0) - ln_gamma(real(k) + 1.0) - ln_gamma(real(n - k) + 1.0)
}

fn ln_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

/// Stirling's series, moved to where its first terms are exact to the last digits (Abramowitz and Stegun 6.1.41).
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 16.0 {
        product *= x;
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / 1680.0 / square) / square) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - f64::ln(product)
}

/// The regularised incomplete beta function: the share of a Beta distribution below `x` (continued fraction 26.5.8 of
/// Abramowitz and Stegun, by Lentz's method).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() - ln_beta(a, b)).exp();
    // The fraction converges quickly on one side of the mean only; the other is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, 1.0 - x) / b
    }
}

fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for step in 1..10_000_u32 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            value *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The standard normal distribution up to `z` (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn normal_below(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let tail = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let polynomial = tail.iter().fold(0.0, |sum, term| (sum + term) * t);
    let above = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * polynomial;
    if z > 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests;
