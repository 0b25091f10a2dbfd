//! The arguments of the attributes.

use proc_macro2::{Span, TokenStream};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Lit, LitInt, LitStr, Meta, MetaList, Result, Token, Type};

use crate::function::Kind;

/// The validated arguments of an attribute.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitStr>,
    pub(crate) retry: Option<LitInt>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) total_timeout_ms: Option<u64>,
    pub(crate) queue_timeout_ms: Option<u64>,
    pub(crate) heartbeat_timeout_ms: Option<u64>,
    pub(crate) tag: Option<LitStr>,
    pub(crate) error_as_message: bool,
    pub(crate) state: Vec<Type>,
    pub(crate) uses: Vec<Expr>,
}

impl Arguments {
    pub(crate) fn parse(kind: Kind, tokens: TokenStream) -> Result<Arguments> {
        let options = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut arguments = Arguments::default();
        let mut seen = Vec::new();
        for option in options {
            let name = option.path().get_ident().map(ToString::to_string).unwrap_or_default();
            if seen.contains(&name) {
                return Err(Error::new_spanned(option.path(), format!("`{name}` is specified twice")));
            }
            seen.push(name.clone());
            match (kind, name.as_str()) {
                (Kind::Activity, "state") => {
                    let of = "expected types of shared state, such as `state(Pool)`";
                    arguments.state = list(&option, Punctuated::<Type, Token![,]>::parse_terminated, of)?;
                    continue;
                }
                (Kind::Orchestration, "uses") => {
                    let of = "expected activities and orchestrations, such as `uses(charge, ship)`";
                    arguments.uses = list(&option, Punctuated::<Expr, Token![,]>::parse_terminated, of)?;
                    check_used(&arguments.uses)?;
                    continue;
                }
                _ => check_known(kind, &option, &name)?,
            }
            let value = &option.require_name_value()?.value;
            match (kind, name.as_str()) {
                (_, "name") => arguments.name = Some(text(value, A_STRING)?),
                (Kind::Orchestration, "version") => arguments.version = Some(version(value)?),
                (Kind::Activity, "retry") => arguments.retry = Some(number(value)?),
                (Kind::Activity, "timeout") => arguments.timeout_ms = Some(span_of_time(value)?),
                (Kind::Activity, "total_timeout") => arguments.total_timeout_ms = Some(span_of_time(value)?),
                (Kind::Activity, "queue_timeout") => arguments.queue_timeout_ms = Some(span_of_time(value)?),
                (Kind::Activity, "heartbeat_timeout") => {
                    arguments.heartbeat_timeout_ms = Some(span_of_time(value)?);
                }
                (Kind::Activity, "tag") => arguments.tag = Some(text(value, A_STRING)?),
                (Kind::Activity, "error") => {
                    let how = text(value, A_STRING)?;
                    if how.value() != "message" {
                        return Err(Error::new(how.span(), "expected `error = \"message\"`"));
                    }
                    arguments.error_as_message = true;
                }
                (_, other) => unreachable!("`{other}` was checked to be one of those above"),
            }
        }
        Ok(arguments)
    }
}

/// The names of the options, without those that are lists.
fn known(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Orchestration => &["name", "version"],
        Kind::Activity => &[
            "name",
            "retry",
            "timeout",
            "total_timeout",
            "queue_timeout",
            "heartbeat_timeout",
            "tag",
            "error",
        ],
    }
}

fn check_known(kind: Kind, option: &Meta, name: &str) -> Result<()> {
    if known(kind).contains(&name) {
        return Ok(());
    }
    let list = match kind {
        Kind::Orchestration => "uses",
        Kind::Activity => "state",
    };
    let known: Vec<String> = known(kind).iter().chain([&list]).map(|name| format!("`{name}`")).collect();
    let problem = format!("unknown option `{name}`; expected one of {}", known.join(", "));
    Err(Error::new_spanned(option.path(), problem))
}

/// Parses the items in the parentheses of an option.
fn list<T>(
    option: &Meta,
    parser: impl Parser<Output = Punctuated<T, Token![,]>>,
    expected: &str,
) -> Result<Vec<T>> {
    match option {
        Meta::List(MetaList { tokens, .. }) if !tokens.is_empty() => {
            Ok(parser.parse2(tokens.clone())?.into_iter().collect())
        }
        other => Err(Error::new_spanned(other, expected)),
    }
}

/// Accepts functions, constants such as an `Activity`, and strings.
fn check_used(uses: &[Expr]) -> Result<()> {
    let is_name = |used: &&Expr| matches!(used, Expr::Path(_) | Expr::Lit(ExprLit { lit: Lit::Str(_), .. }));
    match uses.iter().find(|used| !is_name(used)) {
        Some(other) => Err(Error::new_spanned(other, "expected a function or a name in double quotes")),
        None => Ok(()),
    }
}

const A_STRING: &str = "expected a string in double quotes";
const A_VERSION: &str = "expected a version of three numbers, such as \"1.0.0\"";
const A_SPAN_OF_TIME: &str = "expected a duration, such as \"250ms\", \"30s\", \"5m\", \"2h\" or \"7d\"";

fn text(value: &Expr, expected: &str) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(Error::new_spanned(other, expected)),
    }
}

fn number(value: &Expr) -> Result<LitInt> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_parse::<u32>()? > 0 => {
            Ok(number.clone())
        }
        other => Err(Error::new_spanned(other, "expected the number of attempts, such as 5")),
    }
}

fn version(value: &Expr) -> Result<LitStr> {
    let version = text(value, A_VERSION)?;
    let text = version.value();
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = core.split('.').collect();
    if parts.len() == 3 && parts.into_iter().all(is_number) {
        Ok(version)
    } else {
        Err(Error::new(version.span(), A_VERSION))
    }
}

/// Parses a duration such as `250ms`, `30s`, `5m`, `2h`, `7d`.
fn span_of_time(value: &Expr) -> Result<u64> {
    let text = text(value, A_SPAN_OF_TIME)?;
    let written = text.value();
    let digits = written.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = written.split_at(digits);
    let unit_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let span_ms = number.zip(unit_ms).and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    span_ms.ok_or_else(|| Error::new(text.span(), A_SPAN_OF_TIME))
}

/// `Some` with a literal of milliseconds, or `None`.
pub(crate) fn maybe(value: Option<u64>) -> TokenStream {
    match value {
        Some(value) => {
            let value = syn::LitInt::new(&format!("{value}u64"), Span::call_site());
            quote::quote!(::core::option::Option::Some(#value))
        }
        None => quote::quote!(::core::option::Option::None),
    }
}
