//! Formats numbers for people.

/// Formats a number of bytes with three significant digits, in a unit that is a power of 1024: `11.4 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Formats a number with thousands separators: `10,000,000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a fraction as a percentage, with up to three significant digits: `1%`, `0.0123%`.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    if !value.is_finite() {
        return "-".into();
    }
    if value == 0.0 {
        return "0%".into();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in [(0, "0 B"), (999, "999 B"), (1024, "1.00 KiB"), (12_582_912, "12.0 MiB")] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(bytes(1023 * 1024), "1.00 MiB");
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (10_000_000, "10,000,000")] {
            assert_eq!(count(value), text);
        }
        for (value, text) in
            [(0.01, "1%"), (1.0, "100%"), (0.000_123_456, "0.0123%"), (0.0, "0%"), (0.5012, "50.1%")]
        {
            assert_eq!(percent(value), text);
        }
    }
}
