//! Output formats: tables for people, one JSON object per line for programs.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use serde::Serialize;

use crate::exit::Failure;

/// Writes one line. Text from a store may contain anything, so that nothing in it can end the line or reach the terminal as
/// a command.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    raw(&format!("{}\n", visible(text.as_ref())))
}

/// Writes a text that may have several lines.
pub(crate) fn lines(text: impl AsRef<str>) -> Result<(), Failure> {
    text.as_ref().split('\n').try_for_each(line)
}

/// Writes a text of this program as it is.
pub(crate) fn raw(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes lines to standard error.
pub(crate) fn complain(text: impl AsRef<str>) {
    text.as_ref().split('\n').for_each(|line| eprintln!("{}", visible(line)));
}

/// A text in which every character can be seen: characters that control a terminal, or the order in which text is shown,
/// become escapes. They are those of JSON, so that JSON stays what it is.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Control characters, marks that change the direction of text, separators of lines, and characters without a shape.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Creates a file for its user only. A path that exists, be it a symbolic link, is refused.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Writes one JSON object as a line.
pub(crate) fn object(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value).map_err(Failure::failed)?)
}

/// A table whose cells show every character.
pub(crate) struct Rows(Table);

impl Rows {
    pub(crate) fn add_row<const N: usize>(&mut self, cells: [String; N]) {
        // A cell may have several lines.
        let shown = |cell: String| {
            cell.split('\n').map(|line| visible(line).into_owned()).collect::<Vec<_>>().join("\n")
        };
        self.0.add_row(cells.map(shown));
    }
}

/// Writes a table without trailing blanks, which are in the way when copied.
pub(crate) fn table(rows: &Rows) -> Result<(), Failure> {
    let text = rows.0.to_string();
    for row in text.lines() {
        line(row.trim_end())?;
    }
    Ok(())
}

/// Creates a table with these columns. Columns whose name starts with `>` are aligned to the right.
pub(crate) fn columns(names: &[&str]) -> Rows {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(names.iter().map(|name| name.trim_start_matches('>').to_uppercase()));
    tighten(&mut table);
    for (column, name) in names.iter().enumerate() {
        if name.starts_with('>')
            && let Some(column) = table.column_mut(column)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    Rows(table)
}

/// Creates a table of names and values.
pub(crate) fn pairs(rows: impl IntoIterator<Item = (&'static str, String)>) -> Rows {
    let mut table = Rows(Table::new());
    table.0.load_preset(NOTHING);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    tighten(&mut table.0);
    table
}

/// Sets two blanks between columns, and no left margin.
fn tighten(table: &mut Table) {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
}

/// A time in UTC, to the millisecond.
pub(crate) fn moment(at_ms: u64) -> String {
    let known = i64::try_from(at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    known.map_or_else(|| format!("{at_ms} ms"), |at| format!("{at:.3}"))
}

/// A duration in a readable unit.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.2} s", ms as f64 / 1_000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d {} h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

/// A count with its noun: `1 turn`, `2 turns`.
pub(crate) fn many(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Whether standard output is a terminal. Text is cut to fit a terminal, and written in full elsewhere.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// On a terminal, at most this many characters of a text on one line; elsewhere, all of it.
pub(crate) fn fitting(text: &str, width: usize) -> String {
    if is_terminal() { short(text, width) } else { short(text, usize::MAX) }
}

/// At most this many characters of a text, on one line.
pub(crate) fn short(text: &str, width: usize) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    match text.chars().nth(width) {
        None => text.chars().map(one_line).collect(),
        Some(_) => text.chars().take(width - 1).map(one_line).chain(['…']).collect(),
    }
}

/// The current time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A progress bar on standard error. Nothing is drawn if that is not a terminal.
pub(crate) fn progress(total: Option<u64>, what: &'static str) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    let template = if total.is_some() {
        "{msg} {bar:30} {pos}/{len} {elapsed}"
    } else {
        "{spinner} {msg} {pos} {elapsed}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("█▌ "));
    }
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

#[cfg(test)]
mod tests {
    use super::{moment, short, span, visible};

    #[test]
    fn p8_characters_that_control_a_terminal_are_shown_as_escapes() {
        assert_eq!(visible("a\u{1b}[2J\r\n\t\u{9b}"), "a\\u001b[2J\\u000d\\u000a\\u0009\\u009b");
        assert_eq!(visible("\u{202e}\u{2066}\u{feff}\u{e0041}"), "\\u202e\\u2066\\ufeff\\udb40\\udc41");
        assert_eq!(visible("Grüße, 世界 👩‍🚀"), "Grüße, 世界 👩‍🚀");
        let json = serde_json::to_string("\u{202e}x").unwrap();
        assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), "\u{202e}x");
    }

    #[test]
    fn p8_spans_and_moments_read_well() {
        assert_eq!(span(12), "12 ms");
        assert_eq!(span(2_310), "2.31 s");
        assert_eq!(span(61_000), "1 min 1 s");
        assert_eq!(span(3_660_000), "1 h 1 min");
        assert_eq!(span(90_000_000), "1 d 1 h");
        assert_eq!(moment(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(moment(u64::MAX), format!("{} ms", u64::MAX));
        assert_eq!(short("a\nbcd", 4), "a b…");
    }
}
