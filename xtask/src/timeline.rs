//! `cargo xtask timeline`: draws `docs/timeline.txt` as `docs/timeline.svg`, the picture in the README.
//!
//! The text is the output of the `perennial` command in a real run: the columns below are those of its
//! timeline. A test checks that the two files agree.

use std::fmt::Write;
use std::fs;

use crate::command::{Failure, announce, workspace_root};

/// The columns of the command's timeline: label, bar, duration and note.
const LABEL: usize = 6;
const BAR: usize = 32;
const TOOK: usize = 80;

/// The size of a character of the text, and of a line of the picture, in pixels.
const CHARACTER: usize = 8;
const LINE: usize = 26;
const MARGIN: usize = 16;

const STYLE: &str = "\
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
.quiet { fill: #656d76 } .page { fill: #ffffff; stroke: #d0d7de }
.activity { fill: #0969da } .timer { fill: #8c959f } .wait { fill: #bf8700 } .child { fill: #1a7f37 }
.mark { fill: #cf222e } line { stroke: #cf222e; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #8d96a0 } .page { fill: #0d1117; stroke: #30363d }
  .mark { fill: #ff7b72 } line { stroke: #ff7b72 }
}";

pub(crate) fn run() -> Result<(), Failure> {
    announce("timeline", "docs/timeline.txt as docs/timeline.svg");
    let docs = workspace_root().join("docs");
    let failure = |error| Failure::new("timeline", error);
    let text = fs::read_to_string(docs.join("timeline.txt")).map_err(failure)?;
    fs::write(docs.join("timeline.svg"), draw(&text)).map_err(failure)
}

/// Draws one timeline as an SVG document.
fn draw(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let height = MARGIN * 2 + LINE * lines.len();
    let width = MARGIN * 2 + CHARACTER * (TOOK + 26);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>Timeline of one instance</title>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        width - 1,
        height - 1
    );
    let mut rows = lines.iter().enumerate();
    if let Some((row, title)) = rows.next() {
        write_text(&mut svg, row, 0, "", title);
    }
    for (row, line) in rows {
        draw_line(&mut svg, row, line);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_line(svg: &mut String, row: usize, line: &str) {
    let columns: Vec<char> = line.chars().collect();
    let cut = |from: usize, to: usize| -> String {
        columns.iter().skip(from).take(to - from).collect::<String>().trim_end().to_owned()
    };
    let label = cut(LABEL, BAR);
    let bar = cut(BAR, TOOK);
    let marks: Vec<usize> =
        bar.chars().enumerate().filter(|(_, drawn)| *drawn == '✗').map(|(column, _)| column).collect();
    if label.is_empty() {
        // The scale: its two numbers keep their positions.
        write_text(svg, row, BAR, "quiet", "0");
        let end = bar.trim_start_matches(['0', ' ']).to_owned();
        write_text(svg, row, TOOK - end.chars().count(), "quiet", &end);
    } else if marks.is_empty() {
        write_text(svg, row, 0, "quiet", &cut(0, LABEL));
        write_text(svg, row, LABEL, "", &label);
        let (from, length) =
            (bar.chars().take_while(|drawn| *drawn == ' ').count(), bar.trim_start().chars().count());
        let kind = label.split(' ').next().unwrap_or_default();
        let (x, y) = (MARGIN + CHARACTER * (BAR + from), MARGIN + LINE * row + 6);
        let _ = writeln!(
            svg,
            "<rect class=\"{kind}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"3\"/>",
            CHARACTER * length.max(1),
            LINE - 12
        );
        write_text(svg, row, TOOK, "quiet", &cut(TOOK, columns.len().max(TOOK)));
    } else {
        write_text(svg, row, LABEL, "mark", &label);
        for column in marks {
            let x = MARGIN + CHARACTER * (BAR + column) + CHARACTER / 2;
            let (top, bottom) = (MARGIN + LINE * 2, MARGIN + LINE * row);
            let _ = writeln!(svg, "<line x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\"/>");
            write_text(svg, row, BAR + column, "mark", "✗");
        }
    }
}

fn write_text(svg: &mut String, row: usize, column: usize, class: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let (x, y) = (MARGIN + CHARACTER * column, MARGIN + LINE * row + 17);
    let _ = writeln!(svg, "<text class=\"{class}\" xml:space=\"preserve\" x=\"{x}\" y=\"{y}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_readme_is_drawn_from_the_recorded_output() {
        let docs = workspace_root().join("docs");
        let text = fs::read_to_string(docs.join("timeline.txt")).unwrap();
        let picture = fs::read_to_string(docs.join("timeline.svg")).unwrap();
        assert_eq!(picture, draw(&text), "run `cargo xtask timeline`");
    }

    #[test]
    fn bars_and_marks_keep_their_columns() {
        let bar = format!("{:>4}  {:26}{}", 3, "timer 5 ms", "  ├──┤");
        let marks = format!("      {:26}{}", "kill -9", "   ✗");
        let svg = draw(&format!("order-1\n{}\n{bar}\n{marks}\n", " ".repeat(32)));
        let x = |column: usize| MARGIN + CHARACTER * column;
        assert!(svg.contains(&format!("<rect class=\"timer\" x=\"{}\"", x(BAR + 2))), "{svg}");
        assert!(svg.contains(&format!("<line x1=\"{}\"", x(BAR + 3) + CHARACTER / 2)), "{svg}");
    }
}
