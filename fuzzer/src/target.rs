//! The targets: their names, bodies and corpora.

use std::path::PathBuf;

use perennial_testkit::fuzzing;

use crate::messages;

/// Something that reads bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Bytes as turns and histories.
    Decode,
    /// Bytes as histories of real code, and as choices of how to break a good history.
    Replay,
    /// Bytes as messages, requests, replies, task work and settings.
    Messages,
    /// Bytes as changes of stored rows and of the file, which is then opened.
    #[cfg(feature = "surfaces")]
    Rows,
    /// Bytes as arguments of the command.
    #[cfg(feature = "surfaces")]
    Command,
    /// Bytes as HTTP requests.
    #[cfg(feature = "surfaces")]
    Http,
}

impl Target {
    /// All targets of this build.
    pub const ALL: &[Target] = &[
        Target::Decode,
        Target::Replay,
        Target::Messages,
        #[cfg(feature = "surfaces")]
        Target::Rows,
        #[cfg(feature = "surfaces")]
        Target::Command,
        #[cfg(feature = "surfaces")]
        Target::Http,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Target::Decode => "decode",
            Target::Replay => "replay",
            Target::Messages => "messages",
            #[cfg(feature = "surfaces")]
            Target::Rows => "rows",
            #[cfg(feature = "surfaces")]
            Target::Command => "command",
            #[cfg(feature = "surfaces")]
            Target::Http => "http",
        }
    }

    /// The target of a name.
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.iter().copied().find(|target| target.name() == name)
    }

    /// Runs the body, and returns whether the input was accepted.
    ///
    /// # Panics
    ///
    /// If it finds a bug.
    pub fn run(self, input: &[u8]) -> bool {
        match self {
            Target::Decode => fuzzing::decode(input).is_ok(),
            Target::Replay => {
                let as_turns = fuzzing::replay(input).is_ok();
                fuzzing::replay_mutated(input).is_ok() || as_turns
            }
            Target::Messages => messages::run(input),
            #[cfg(feature = "surfaces")]
            Target::Rows => crate::rows::run(input),
            #[cfg(feature = "surfaces")]
            Target::Command => crate::command::run(input),
            #[cfg(feature = "surfaces")]
            Target::Http => crate::http::run(input),
        }
    }

    /// The inputs that others are made from: those in `corpus`, and for histories also some that are recorded now.
    ///
    /// # Panics
    ///
    /// If the directory cannot be read.
    pub fn corpus(self) -> Vec<Vec<u8>> {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name());
        let entries =
            std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let mut inputs: Vec<Vec<u8>> =
            paths.iter().map(|path| std::fs::read(path).expect("a file")).collect();
        if matches!(self, Target::Decode | Target::Replay) {
            let choices = |seed: u8| {
                (0..200_u32).map(move |place| (place.wrapping_mul(37 + u32::from(seed)) >> 2) as u8)
            };
            inputs.extend((0..24).map(|seed| fuzzing::recorded_history(&choices(seed).collect::<Vec<_>>())));
        }
        if self == Target::Decode {
            // Short ones as well: what is wrong with a turn does not depend on how many there are.
            let turns = |input: &Vec<u8>, count: usize| {
                input
                    .split_inclusive(|byte| *byte == b'\n')
                    .take(count)
                    .collect::<Vec<_>>()
                    .concat()
                    .trim_ascii_end()
                    .to_vec()
            };
            let short: Vec<Vec<u8>> =
                inputs.iter().flat_map(|input| [1, 1, 1, 2].map(|count| turns(input, count))).collect();
            inputs.extend(short);
        }
        inputs
    }
}
