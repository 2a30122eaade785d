//! Ratios of figures that were taken one right after the other.

/// The middle of the ratios of all pairs, and the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Ratio {
    /// Of round after round. A round that lacks one of the two is left out. `None` without any
    /// pair, or if something is to be divided by 0.
    pub fn paired(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
        let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        if ratios.is_empty() || ratios.iter().any(|ratio| !ratio.is_finite()) {
            return None;
        }
        let median = median(&mut ratios);
        // `median` has sorted them.
        Some(Ratio {
            median,
            least: ratios[0],
            greatest: ratios[ratios.len() - 1],
        })
    }
}

/// The middle of the figures; the mean of the two middle ones of an even number.
pub fn median(figures: &mut [f64]) -> f64 {
    assert!(!figures.is_empty(), "a median of nothing");
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        1 => figures[middle],
        _ => (figures[middle - 1] + figures[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_one_or_the_mean_of_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn ratio_is_the_median_of_the_ratios_of_pairs_and_not_the_ratio_of_medians() {
        let ratio = Ratio::paired(&[10.0, 30.0, 8.0], &[5.0, 10.0, 8.0]).unwrap();
        assert_eq!(ratio.median, 2.0);
        assert_eq!((ratio.least, ratio.greatest), (1.0, 3.0));
        assert_eq!(Ratio::paired(&[1.0], &[]), None);
        assert_eq!(Ratio::paired(&[1.0], &[0.0]), None);
    }
}
