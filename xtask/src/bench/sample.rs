//! One measurement, and statistics of repeated ones.

use std::collections::BTreeMap;

/// Figures by name: those of a contender's `end` line, and the server's usage in that time.
#[derive(Clone, Debug, Default)]
pub struct Sample(pub BTreeMap<String, f64>);

impl Sample {
    pub fn read(line: &str) -> Self {
        let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
        Self(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    pub fn per_hold(&self, name: &str) -> f64 {
        self.get(name) / self.get("holds")
    }
}

/// Measurements of the same thing in different rounds.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Applies `figure` to each measurement.
    pub fn figures(&self, figure: impl Fn(&Sample) -> f64) -> Figures {
        Figures(self.0.iter().map(figure).filter(|value| !value.is_nan()).collect())
    }

    pub fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        self.figures(figure).median()
    }
}

/// One figure in each round.
#[derive(Clone, Debug, Default)]
pub struct Figures(pub Vec<f64>);

impl Figures {
    /// The median.
    pub fn median(&self) -> f64 {
        let all = self.sorted();
        match all.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => all[n / 2],
            n => f64::midpoint(all[n / 2 - 1], all[n / 2]),
        }
    }

    /// The median of each three rounds.
    pub fn by_threes(&self) -> Self {
        Self(self.0.chunks(3).map(|three| Self(three.to_vec()).median()).collect())
    }

    pub fn least(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(f64::NAN)
    }

    pub fn most(&self) -> f64 {
        self.sorted().last().copied().unwrap_or(f64::NAN)
    }

    /// The relative distance of the extremes from the median.
    pub fn spread(&self) -> f64 {
        let far = |value: f64| (value / self.median() - 1.0).abs();
        far(self.least()).max(far(self.most()))
    }

    fn sorted(&self) -> Vec<f64> {
        let mut all = self.0.clone();
        all.sort_by(f64::total_cmp);
        all
    }
}

pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Holds per second.
pub fn rate(sample: &Sample) -> f64 {
    sample.per_hold("seconds").recip()
}
