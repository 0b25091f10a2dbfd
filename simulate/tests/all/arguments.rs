use clap::Parser;
use perennial_simulate::arguments::{Arguments, Job, Kind, Until};

fn parse(line: &str) -> Result<Arguments, i32> {
    Arguments::try_parse_from(["simulate"].into_iter().chain(line.split_whitespace()))
        .map_err(|error| error.exit_code())
}

#[test]
fn seeds_minutes_flaws_and_cases_are_jobs_of_their_own() {
    let job = |line| parse(line).map(|arguments| arguments.job());
    assert_eq!(job("--seeds 10"), Ok(Job::Campaign(Until::Seeds(10))));
    assert_eq!(job("--minutes 0.5"), Ok(Job::Campaign(Until::Elapsed(std::time::Duration::from_secs(30)))));
    assert_eq!(job("--flaws --samples 3"), Ok(Job::Flaws(3)));
    assert_eq!(job("--case a.json"), Ok(Job::Case("a.json".into())));
    let arguments = parse("--seeds 1 --first 7 --threads 2 --kind short").expect("it parses");
    assert_eq!((arguments.first, arguments.threads(), arguments.kind), (7, 2, Kind::Short));
}

#[test]
fn wrong_arguments_exit_with_two() {
    for line in [
        "",
        "--seeds",
        "--seeds 1 --minutes 1",
        "--minutes -1",
        "--seeds 1 --threads 0",
        "--nothing",
        "--seeds 1 --flaw Nothing",
    ] {
        assert_eq!(parse(line).err(), Some(2), "{line}");
    }
}
