//! The project's own commands, run as `cargo xtask <task>`.
//!
//! This file parses the arguments into a task, and turns its outcome into an exit code: 0 for success, 1 if a
//! step failed, 2 for invalid arguments. Each task has its own file.

mod bench;
mod browser;
mod chaos;
mod command;
mod dashboard_rules;
mod document;
mod fuzz;
mod house_rules;
mod installer;
mod licences;
mod links;
mod lint;
mod log_table;
mod metadata;
mod neighbours;
mod node;
mod packaging;
mod postgres;
mod simulate;
mod sizes;
mod sources;
mod test;
mod timeline;
mod ui;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <task>

Tasks:
  test      compile the benchmarks and run all tests, including doc tests and those of the dashboard in a browser; installs
            PostgreSQL, Node and Chromium if it can and must
  bench     run the load generator in release mode: bench [WORKLOAD…] [--store URL] [--peers], bench --help
  chaos     run nodes as processes and inject faults: chaos [--store sqlite] [--minutes M] [--faults N] [--seed S]
            [--power-loss N], chaos --help
  simulate  run simulated nodes with drawn faults in release mode, on all cores: simulate --seeds N | --minutes M | --flaws
            | --case FILE, simulate --help; exits with 0 (clean), 1 (violation, or something not met), 2 (arguments)
  fuzz      run hostile inputs on all cores: fuzz [TARGET…] [--executions N] [--seconds S], fuzz --help
  lint      check formatting, clippy, docs, links, the guide, house rules, sizes, the log page, the minimum compiler
            version, neighbours, packages, the licences of dependencies, and the dashboard's files against its sources
  ui        build the dashboard into crates/perennial-server/dist; needs Node
  screenshots
            make pictures of all pages of the dashboard: screenshots [DIRECTORY]
  timeline  draw docs/timeline.txt, the output of a real run, as docs/timeline.svg
  help      print this text";

#[derive(Debug, PartialEq, Eq)]
enum Task {
    Bench(Vec<String>),
    Chaos(Vec<String>),
    Simulate(Vec<String>),
    Fuzz(Vec<String>),
    Test,
    Lint,
    Screenshots(Vec<String>),
    Timeline,
    Ui,
    Help,
}

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let outcome = match parse(&arguments) {
        Ok(Task::Bench(arguments)) => bench::run(&arguments).map_err(|failure| vec![failure]),
        Ok(Task::Chaos(arguments)) => chaos::run(&arguments).map_err(|failure| vec![failure]),
        Ok(Task::Simulate(arguments)) => match simulate::run(&arguments) {
            // The program has said what is wrong with them.
            Err(failure) if failure.is_misuse() => return ExitCode::from(2),
            outcome => outcome.map_err(|failure| vec![failure]),
        },
        Ok(Task::Fuzz(arguments)) => fuzz::run(&arguments).map_err(|failure| vec![failure]),
        Ok(Task::Test) => test::run().map_err(|failure| vec![failure]),
        Ok(Task::Lint) => lint::run(),
        Ok(Task::Screenshots(arguments)) => browser::screenshots(&arguments).map_err(|failure| vec![failure]),
        Ok(Task::Ui) => ui::run().map_err(|failure| vec![failure]),
        Ok(Task::Timeline) => timeline::run().map_err(|failure| vec![failure]),
        Ok(Task::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(complaint) => {
            eprintln!("error: {complaint}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let task = &arguments[0];
    match outcome {
        Ok(()) => {
            eprintln!("==> {task}: passed");
            ExitCode::SUCCESS
        }
        Err(failures) => {
            for failure in failures {
                eprintln!("==> {task}: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Task, String> {
    let Some((task, rest)) = arguments.split_first() else {
        return Err("which task?".to_owned());
    };
    let task = match task.as_str() {
        "bench" => return Ok(Task::Bench(rest.to_vec())),
        "chaos" => return Ok(Task::Chaos(rest.to_vec())),
        "simulate" => return Ok(Task::Simulate(rest.to_vec())),
        "fuzz" => return Ok(Task::Fuzz(rest.to_vec())),
        "screenshots" => return Ok(Task::Screenshots(rest.to_vec())),
        "test" => Task::Test,
        "ui" => Task::Ui,
        "lint" => Task::Lint,
        "timeline" => Task::Timeline,
        "help" | "--help" | "-h" => Task::Help,
        unknown => return Err(format!("unknown task `{unknown}`")),
    };
    match rest.first() {
        None => Ok(task),
        Some(extra) => Err(format!("unexpected argument `{extra}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Task, parse};

    fn parse_words(line: &str) -> Result<Task, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_known_task_is_accepted() {
        assert_eq!(parse_words("test"), Ok(Task::Test));
        assert_eq!(parse_words("lint"), Ok(Task::Lint));
        assert_eq!(parse_words("timeline"), Ok(Task::Timeline));
        assert_eq!(parse_words("ui"), Ok(Task::Ui));
        assert_eq!(parse_words("screenshots a"), Ok(Task::Screenshots(vec!["a".to_owned()])));
        assert_eq!(parse_words("simulate --flaws"), Ok(Task::Simulate(vec!["--flaws".to_owned()])));
        assert_eq!(parse_words("--help"), Ok(Task::Help));
    }

    #[test]
    fn a_missing_unknown_or_extra_argument_is_refused_by_name() {
        assert_eq!(parse_words(""), Err("which task?".to_owned()));
        assert_eq!(parse_words("tset"), Err("unknown task `tset`".to_owned()));
        assert_eq!(parse_words("test now"), Err("unexpected argument `now`".to_owned()));
    }
}
