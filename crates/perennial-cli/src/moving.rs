//! `perennial move`: moves all instances of a stopped store to another one.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use perennial::moving::{MovePhase, MoveProgress, MoveReport, move_store, reopen_store};
use perennial::store::shown_url;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::{line, many, object, progress};

/// Without a terminal, progress is written this often.
const EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn run(from: &str, to: &str, as_json: bool) -> Result<(), Failure> {
    let mut teller = Teller { bar: progress(None, "opening"), told: Instant::now() };
    let moved = move_store(from, to, |progress| teller.tell(progress)).await;
    teller.bar.finish_and_clear();
    let report = moved.map_err(perennial::Error::from)?;
    let (from, to) = (shown_url(from), shown_url(to));
    if as_json {
        return object(&summary(&from, &to, &report));
    }
    let rows: Vec<String> = report
        .tables
        .iter()
        .filter(|table| table.rows > 0 && !matches!(table.name, "counters" | "shards"))
        .map(|table| many(table.rows, table.name.trim_end_matches('s')))
        .collect();
    line(format!("moved {from} to {to}: {}; counts and hashes match", rows.join(", ")))?;
    line(format!(
        "{from} is unchanged, and marked: no runtime or client uses it until `perennial move --reopen {from}`"
    ))
}

fn summary(from: &str, to: &str, report: &MoveReport) -> Value {
    let tables: Vec<Value> = report
        .tables
        .iter()
        .map(|table| json!({"name": table.name, "rows": table.rows, "written": table.written, "hash": table.hash}))
        .collect();
    json!({"from": from, "to": to, "resumed": report.is_resumed, "tables": tables})
}

/// Removes the mark of a move from its source.
pub(crate) async fn reopen(url: &str, as_json: bool) -> Result<(), Failure> {
    let mark = reopen_store(url).await.map_err(perennial::Error::from)?;
    let shown = shown_url(url);
    if as_json {
        return object(&json!({"reopened": shown, "other": mark.other, "was_moved": mark.is_done}));
    }
    line(format!("{shown} can be used again"))?;
    match mark.is_done {
        true => line(format!("make sure that nobody uses {}, which has the same instances", mark.other)),
        false => line(format!("delete {}, which has a part of the instances", mark.other)),
    }
}

/// Shows progress on a terminal, and writes a line now and then elsewhere.
struct Teller {
    bar: ProgressBar,
    told: Instant,
}

impl Teller {
    fn tell(&mut self, MoveProgress { phase, table, rows, of, .. }: MoveProgress) {
        let phase = match phase {
            MovePhase::Copying => "copying",
            MovePhase::Comparing => "comparing",
        };
        let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
        self.bar.set_message(format!("{phase} {table}"));
        self.bar.set_position(rows);
        if self.bar.is_hidden() && self.told.elapsed() >= EVERY {
            eprintln!("{phase} {table}: {rows}{of}");
            self.told = Instant::now();
        }
    }
}
