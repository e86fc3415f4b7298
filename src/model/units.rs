//! Sizes, durations and instants as people write them: `4GiB`, `10m`, `2026-01-01T00:00:00Z`. Each parser says
//! what it accepts.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Reads `4096`, `64KiB`, `4 GiB`, `1.5GB`.
    ///
    /// # Errors
    /// Says what is wrong with the text and what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse::<bytesize::ByteSize>().map(|size| Self(size.as_u64())).map_err(|_| {
            format!("`{text}` is not a size; write a number with a unit, such as `512MiB` or `4GiB`")
        })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// A share between nothing and all, both excluded: a rate of failures, or a confidence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Share {
    billionths: u32,
}

impl Share {
    /// One in twenty.
    pub const TWENTIETH: Self = Self { billionths: 50_000_000 };
    /// All but one in twenty.
    pub const NINETEEN_TWENTIETHS: Self = Self { billionths: 950_000_000 };

    /// Reads `1%`, `0.5%`, `0.01`.
    ///
    /// # Errors
    /// Says what is wrong with the text and what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let problem = || {
            format!(
                "`{text}` is no share between 0 and 1, both excluded; write one such as `1%`, `0.5%` or `0.01`"
            )
        };
        let text = text.trim();
        let (number, digits) = text.strip_suffix('%').map_or((text, 9_usize), |number| (number.trim(), 7));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !plain(whole) || !plain(fraction) || whole.len() > 3 || fraction.len() > digits {
            return Err(problem());
        }
        let padded = format!("{whole}{fraction:0<digits$}");
        let billionths = padded.parse::<u64>().ok().and_then(|number| u32::try_from(number).ok());
        let billionths = billionths.filter(|number| (1..1_000_000_000).contains(number));
        Ok(Self { billionths: billionths.ok_or_else(problem)? })
    }

    /// As a number between 0 and 1.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.billionths) / 1e9
    }
}

/// Reads `90s`, `10m`, `1h 30m`, `250ms`; never zero.
///
/// # Errors
/// Says what is wrong with the text and what is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text.trim()) {
        Ok(duration) if duration.is_zero() => {
            Err(format!("`{text}` is no time at all; a limit is longer than zero"))
        }
        Ok(duration) => Ok(duration),
        Err(_) => Err(format!(
            "`{text}` is not a duration; write a number with a unit, such as `90s`, `10m` or `1h 30m`"
        )),
    }
}

/// Prints a duration so that [`parse_duration`] reads it back.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Reads a number of processors, `2` or `1.5`, into thousandths of one.
///
/// # Errors
/// Says what is wrong with the text and what is accepted.
pub fn parse_cpus(text: &str) -> Result<u32, String> {
    let problem = || {
        format!("`{text}` is not a number of processors; write one from 0.01 to 1024, such as `2` or `1.5`")
    };
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return Err(problem());
    }
    let milli =
        whole.parse::<u32>().ok().filter(|whole| *whole <= 1024).zip(format!("{fraction:0<3}").parse().ok());
    let milli = milli.map(|(whole, fraction): (u32, u32)| whole * 1000 + fraction);
    milli.filter(|milli| (10..=1_024_000).contains(milli)).ok_or_else(problem)
}

/// Prints thousandths of a processor so that [`parse_cpus`] reads them back.
#[must_use]
pub fn show_cpus(milli: u32) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The last instant that a clock can be set to, in seconds since 1970: the kernel counts nanoseconds in 63 bits, which
/// end in 2262 (ktime_t).
pub const INSTANT_MAX: i64 = 9_223_372_036;

/// Reads an RFC 3339 instant into seconds since 1970.
///
/// # Errors
/// Says what is wrong with the text and what is accepted.
pub fn parse_instant(text: &str) -> Result<i64, String> {
    let instant: jiff::Timestamp = text.trim().parse().map_err(|_| {
        format!("`{text}` is not an instant; write it as RFC 3339, such as `2026-01-01T00:00:00Z`")
    })?;
    if instant.subsec_nanosecond() != 0 {
        return Err(format!("`{text}` has a fraction of a second; a clock starts at whole seconds"));
    }
    let secs = instant.as_second();
    if !(0..=INSTANT_MAX).contains(&secs) {
        return Err(format!("`{text}` lies outside the years 1970 to 2262 that a clock can be set to"));
    }
    Ok(secs)
}

/// Prints seconds since 1970 as RFC 3339 in UTC, whole seconds.
#[must_use]
pub fn show_instant(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(|_| format!("@{secs}"), |instant| instant.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_durations_and_instants_read_as_people_write_them() {
        assert_eq!(Bytes::parse("4GiB"), Ok(Bytes(4 << 30)));
        assert_eq!(Bytes::parse("64 KiB"), Ok(Bytes(64 << 10)));
        assert_eq!(Bytes(4 << 30).to_string(), "4GiB");
        assert_eq!(Bytes(1000).to_string(), "1000B");
        assert!(Bytes::parse("4 bananas").is_err_and(|text| text.contains("4 bananas")));
        assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
        assert!(parse_duration("0s").is_err());
        for (text, milli) in [
            ("2", Some(2000)),
            ("1.5", Some(1500)),
            ("0.01", Some(10)),
            ("0", None),
            ("", None),
            ("1.", None),
            ("-1", None),
            ("1e3", None),
            ("9999999999", None),
        ] {
            assert_eq!(parse_cpus(text).ok(), milli, "{text}");
        }
        assert_eq!(
            (show_cpus(1500), show_cpus(2000), show_cpus(10)),
            ("1.5".into(), "2".into(), "0.01".into())
        );
        assert!(parse_duration("soon").is_err());
        assert_eq!(parse_instant("2026-01-01T00:00:00Z"), Ok(1_767_225_600));
        assert_eq!(show_instant(1_767_225_600), "2026-01-01T00:00:00Z");
        assert!(parse_instant("1969-12-31T00:00:00Z").is_err());
        assert!(parse_instant("2500-01-01T00:00:00Z").is_err());
        assert!(parse_instant("2026-01-01T00:00:00.25Z").is_err());
        assert!(parse_instant("2026-01-01").is_err());
    }

    #[test]
    fn shares_lie_between_nothing_and_all() {
        for (text, value) in [("1%", 0.01), ("0.5%", 0.005), ("0.01", 0.01), ("95 %", 0.95), ("99.9%", 0.999)]
        {
            assert!(Share::parse(text).is_ok_and(|share| (share.value() - value).abs() < 1e-12), "{text}");
        }
        for text in ["0", "0%", "100%", "1", "1.5", "-1%", "", "%", "NaN", "1e-3", "0.00000000001"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
    }
}
