//! Which traces are sampled. The decision is made where a trace begins; everything in a trace follows it.

use std::env;

/// Which of the traces that begin in this process are exported. Traces that another process began are exported if it
/// sampled them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Sampling {
    /// All of them.
    #[default]
    Always,
    /// None of them.
    Never,
    /// This share of them, from 0 to 1, chosen by their ids.
    Ratio(f64),
}

impl Sampling {
    /// The choice of the variables `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`: `always_on`, `always_off` or
    /// `traceidratio`, with or without `parentbased_` before it, which makes no difference here. Everything is sampled
    /// if they are not set.
    pub fn from_environment() -> Sampling {
        let variable = |name| env::var(name).unwrap_or_default();
        Sampling::read(&variable("OTEL_TRACES_SAMPLER"), &variable("OTEL_TRACES_SAMPLER_ARG"))
    }

    fn read(sampler: &str, argument: &str) -> Sampling {
        match sampler.trim_start_matches("parentbased_") {
            "always_off" => Sampling::Never,
            "traceidratio" => Sampling::Ratio(argument.parse().unwrap_or(1.0)),
            _ => Sampling::Always,
        }
    }

    pub(crate) fn samples(&self, trace_id: u128) -> bool {
        match self {
            Sampling::Always => true,
            Sampling::Never => false,
            // As the SDKs of other languages choose them, so that all agree.
            Sampling::Ratio(ratio) => {
                let place = (trace_id as u64 >> 1) as f64;
                place < ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sampling;

    #[test]
    fn o10_a_ratio_samples_its_share_of_traces_and_always_the_same_ones() {
        let ids = || (0..10_000_u64).map(|number| u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let share = |sampling: Sampling| ids().filter(|id| sampling.samples(*id)).count();
        assert_eq!((share(Sampling::Always), share(Sampling::Never)), (10_000, 0));
        assert_eq!((share(Sampling::Ratio(1.0)), share(Sampling::Ratio(0.0))), (10_000, 0));
        let quarter = share(Sampling::Ratio(0.25));
        assert!((2_400..2_600).contains(&quarter), "{quarter}");
        let chosen = |id: &u128| Sampling::Ratio(0.25).samples(*id);
        assert!(
            ids().filter(chosen).all(|id| Sampling::Ratio(0.5).samples(id)),
            "a higher ratio has all of a lower one"
        );
    }

    #[test]
    fn o10_the_variables_of_opentelemetry_choose_the_sampling() {
        assert_eq!(Sampling::read("", ""), Sampling::Always);
        assert_eq!(Sampling::read("always_off", ""), Sampling::Never);
        assert_eq!(Sampling::read("parentbased_traceidratio", "0.1"), Sampling::Ratio(0.1));
    }
}
