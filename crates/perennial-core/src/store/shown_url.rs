//! URLs of stores as they may be shown.

/// The URL of a store without its password and its parameters, except for the schema. For messages and logs: whoever
/// reads them must not learn the password.
///
/// ```
/// use perennial_core::store::shown_url;
///
/// let url = "postgres://me:secret@db:5433/shop?sslmode=require&schema=orders&password=secret";
/// assert_eq!(shown_url(url), "postgres://me@db:5433/shop?schema=orders");
/// assert_eq!(shown_url("sqlite:shop.db"), "sqlite:shop.db");
/// ```
pub fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "sqlite") else {
        return url.to_owned();
    };
    // A password may contain any character, even those that separate parts of a URL: up to the last @ all may be of it.
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (login.split([':', '/', '?']).next(), place),
        None => (None, rest),
    };
    let (place, parameters) = place.split_once('?').unwrap_or((place, ""));
    let schema = parameters.split('&').find(|parameter| parameter.starts_with("schema="));
    let login = login.map(|user| format!("{user}@")).unwrap_or_default();
    let schema = schema.map(|schema| format!("?{schema}")).unwrap_or_default();
    format!("{scheme}://{login}{place}{schema}")
}

#[cfg(test)]
mod tests {
    use super::shown_url;

    #[test]
    fn s9_no_part_of_a_password_is_shown() {
        for url in [
            "postgres://me:s3cret@db/shop",
            "postgres://me:a@s3cret@db/shop",
            "postgres://me:a?s3cret@db/shop",
            "postgres://me:a/s3cret@db/shop",
            "postgresql://me:s3cret@db/shop?schema=a",
            "postgres://db/shop?user=me&password=s3cret",
            "postgres://db/shop?password=s3cret&application_name=a@b",
            "postgres://me:s3cret@db",
        ] {
            assert!(!shown_url(url).contains("s3cret"), "{url}: {}", shown_url(url));
        }
        assert_eq!(shown_url("postgres://me:x@db/shop?a=b"), "postgres://me@db/shop");
        assert_eq!(shown_url("postgres://db/shop?schema=or%20ders"), "postgres://db/shop?schema=or%20ders");
        assert_eq!(shown_url("sqlite:a@b:c.db"), "sqlite:a@b:c.db");
    }
}
