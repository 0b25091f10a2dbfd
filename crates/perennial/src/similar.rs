//! The name that a misspelled one was probably meant to be.

/// Returns the name that is most similar to `wanted`, unless all of them are very different.
pub(crate) fn similar<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().chars().collect();
    // One mistake in a short name, and one for every three characters of a longer one.
    let most = (wanted.len() / 3).max(1);
    let distances = names.into_iter().map(|name| {
        let name_chars: Vec<char> = name.to_lowercase().chars().collect();
        (distance(&wanted, &name_chars), name)
    });
    let (distance, name) = distances.min()?;
    (distance <= most && distance < wanted.len()).then_some(name)
}

/// A question for an error message, or nothing.
pub(crate) fn hint(similar: &Option<String>) -> String {
    similar.as_ref().map(|similar| format!(" (did you mean {similar:?}?)")).unwrap_or_default()
}

/// The number of characters to insert, delete or replace to turn one text into the other (Levenshtein).
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (place, one) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], place + 1);
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(one != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p3_the_name_with_the_fewest_mistakes_is_meant() {
        let names = ["order", "order-refund", "checkout", "ship"];
        for (wanted, meant) in [
            ("ordr", Some("order")),
            ("Order", Some("order")),
            ("chekout", Some("checkout")),
            ("checkotu", Some("checkout")),
            ("order_refund", Some("order-refund")),
            ("shop", Some("ship")),
            ("payment", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(similar(wanted, names), meant, "{wanted}");
        }
        assert_eq!(similar("order", []), None);
    }

    #[test]
    fn p3_insertions_deletions_and_replacements_are_counted() {
        let distance = |from: &str, to: &str| {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            distance(&chars(from), &chars(to))
        };
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("", "abc"), distance("abc", ""), distance("ü", "u")), (3, 3, 1));
    }
}
