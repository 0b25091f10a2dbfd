//! Rewrites the function.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, GenericArgument, ItemFn, Pat, PathArguments, Result, ReturnType, Signature, Type, parse2,
};

use crate::arguments::{Arguments, maybe};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Orchestration,
    Activity,
}

impl Kind {
    fn context(self) -> &'static str {
        match self {
            Kind::Orchestration => "OrchestrationContext",
            Kind::Activity => "ActivityContext",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Kind::Orchestration => "an orchestration",
            Kind::Activity => "an activity",
        }
    }
}

/// The maximum number of arguments after the context.
const MAX_ARGUMENTS: usize = 4;

pub(crate) fn expand(kind: Kind, arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments = Arguments::parse(kind, arguments)?;
    let function: ItemFn = parse2(item).map_err(|error| {
        let noun = kind.noun();
        Error::new(error.span(), format!("{noun} must be a function with a body: {error}"))
    })?;
    check(kind, &function.sig)?;
    let ItemFn { attrs, vis, sig, block } = &function;
    let (output, error) = result_types(kind, sig)?;
    let Signature { ident, inputs, .. } = sig;
    let name = arguments.name.as_ref().map_or_else(|| ident.unraw().to_string(), syn::LitStr::value);
    let carried = inputs.iter().skip(1).filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&*typed.ty),
        FnArg::Receiver(_) => None,
    });
    let error_type = if arguments.error_as_message { quote!(::std::string::String) } else { quote!(#error) };
    let carried: Vec<TokenStream> = carried
        .map(|ty| quote_spanned!(ty.span()=> ::perennial::typed::assert_recordable::<#ty>();))
        .chain([match kind {
            Kind::Orchestration => {
                quote_spanned!(output.span()=> ::perennial::typed::assert_recordable::<#output>();)
            }
            Kind::Activity => {
                quote_spanned!(output.span()=> ::perennial::typed::assert_recordable_result::<#output>();)
            }
        }])
        .chain([quote_spanned!(error.span()=> ::perennial::typed::assert_recordable::<#error_type>();)])
        .collect();
    let marker = marker(kind, &name, &argument_names(sig), &arguments);
    let meta = match kind {
        Kind::Orchestration => quote!(::perennial::typed::OrchestrationMeta),
        Kind::Activity => quote!(::perennial::typed::ActivityMeta),
    };
    let body = match (sig.asyncness.is_some(), arguments.error_as_message) {
        (true, false) => {
            let statements = &block.stmts;
            // The return type is stated first, so that a type error is reported at its location, not at the attribute.
            quote!(async move {
                if let ::core::option::Option::Some(returned) =
                    ::core::option::Option::None::<::core::result::Result<#output, #error>>
                {
                    return returned;
                }
                #(#statements)*
            })
        }
        (true, true) => quote!(async move {
            let outcome: ::core::result::Result<#output, #error> = async move #block.await;
            outcome.map_err(|error| ::std::string::ToString::to_string(&error))
        }),
        (false, false) => quote! {
            ::perennial::typed::blocking(move || -> ::core::result::Result<#output, #error> #block)
        },
        (false, true) => quote!(::perennial::typed::blocking(move || {
            let outcome: ::core::result::Result<#output, #error> = (move || #block)();
            outcome.map_err(|error| ::std::string::ToString::to_string(&error))
        })),
    };
    Ok(quote! {
        #(#attrs)*
        #vis fn #ident(#inputs) -> ::perennial::typed::Call<
            impl #meta,
            impl ::core::future::Future<Output = ::core::result::Result<#output, #error_type>> + ::core::marker::Send,
        > {
            #marker
            let _ = || { #(#carried)* };
            ::perennial::typed::Call::<Marker, _>::new(#body)
        }
    })
}

/// The names of the arguments after the context; empty if one is a pattern. A leading underscore is removed: it only
/// marks the argument as unused.
fn argument_names(sig: &Signature) -> Vec<String> {
    let name = |input: &FnArg| match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) => Some(pattern.ident.unraw().to_string().trim_start_matches('_').to_owned()),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    };
    sig.inputs.iter().skip(1).map(name).collect::<Option<Vec<String>>>().unwrap_or_default()
}

fn marker(kind: Kind, name: &str, names: &[String], arguments: &Arguments) -> TokenStream {
    match kind {
        Kind::Orchestration => {
            let version = arguments.version.as_ref().map_or_else(|| "1.0.0".to_owned(), syn::LitStr::value);
            let uses = &arguments.uses;
            let uses = uses.iter().map(|used| quote_spanned!(used.span()=> ::perennial::typed::used(&#used)));
            quote! {
                struct Marker;
                impl ::perennial::typed::OrchestrationMeta for Marker {
                    const NAME: &'static str = #name;
                    const VERSION: &'static str = #version;
                    const ARGUMENTS: &'static [&'static str] = &[#(#names),*];
                    fn uses() -> ::std::vec::Vec<::perennial::typed::Used> {
                        ::std::vec![#(#uses),*]
                    }
                }
            }
        }
        Kind::Activity => {
            let attempt = maybe(arguments.timeout_ms);
            let total = maybe(arguments.total_timeout_ms);
            let queue = maybe(arguments.queue_timeout_ms);
            let heartbeat = maybe(arguments.heartbeat_timeout_ms);
            let retry = match &arguments.retry {
                Some(attempts) => {
                    quote!(::core::option::Option::Some(::perennial::RetryPolicy::exponential(#attempts)))
                }
                None => quote!(::core::option::Option::None),
            };
            let tag = match &arguments.tag {
                Some(tag) => quote!(::core::option::Option::Some(::std::string::String::from(#tag))),
                None => quote!(::core::option::Option::None),
            };
            let state = &arguments.state;
            let state = quote!(#(::perennial::typed::StateType::of::<#state>()),*);
            quote! {
                struct Marker;
                impl ::perennial::typed::ActivityMeta for Marker {
                    const NAME: &'static str = #name;
                    const ARGUMENTS: &'static [&'static str] = &[#(#names),*];
                    fn options() -> ::perennial::options::ActivityOptions {
                        ::perennial::options::ActivityOptions {
                            retry: #retry,
                            queue_timeout_ms: #queue,
                            attempt_timeout_ms: #attempt,
                            total_timeout_ms: #total,
                            heartbeat_timeout_ms: #heartbeat,
                            tag: #tag,
                            // Determined by the return type.
                            completes_later: false,
                        }
                    }
                    fn state() -> ::std::vec::Vec<::perennial::typed::StateType> {
                        ::std::vec![#state]
                    }
                }
            }
        }
    }
}

fn check(kind: Kind, sig: &Signature) -> Result<()> {
    let noun = kind.noun();
    if kind == Kind::Orchestration && sig.asyncness.is_none() {
        return Err(Error::new(sig.fn_token.span, "an orchestration must be an `async fn`"));
    }
    let qualifiers =
        [sig.constness.map(|q| q.span), sig.unsafety.map(|q| q.span), sig.abi.as_ref().map(Spanned::span)];
    if let Some(span) = qualifiers.into_iter().flatten().next() {
        return Err(Error::new(span, format!("{noun} must not be `const`, `unsafe` or `extern`")));
    }
    if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
        let problem = format!("{noun} must not be generic: it is identified by its name");
        return Err(Error::new_spanned(&sig.generics, problem));
    }
    let context = kind.context();
    let missing = || {
        let problem = format!("the first argument of {noun} must be its context: `ctx: {context}`");
        Error::new(sig.paren_token.span.join(), problem)
    };
    match sig.inputs.first() {
        Some(FnArg::Typed(first)) if is_context(&first.ty, context) => {}
        Some(FnArg::Typed(_)) | None => return Err(missing()),
        Some(FnArg::Receiver(receiver)) => {
            return Err(Error::new_spanned(
                receiver,
                format!("{noun} must be a plain function, without `self`"),
            ));
        }
    }
    for input in sig.inputs.iter().skip(1) {
        if let FnArg::Typed(typed) = input
            && matches!(&*typed.ty, Type::ImplTrait(_) | Type::Reference(_))
        {
            let problem = format!(
                "the arguments of {noun} are decoded from a history: use types that own their data, such as `String`"
            );
            return Err(Error::new_spanned(&typed.ty, problem));
        }
    }
    if let Some(surplus) = sig.inputs.iter().nth(MAX_ARGUMENTS + 1) {
        let problem =
            format!("{noun} takes at most {MAX_ARGUMENTS} arguments after its context; use a struct");
        return Err(Error::new_spanned(surplus, problem));
    }
    Ok(())
}

fn is_context(ty: &Type, context: &str) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| segment.ident == context),
        _ => false,
    }
}

/// The types of a function's `Result<T, E>`, or of an alias of it.
fn result_types(kind: Kind, sig: &Signature) -> Result<(Type, Type)> {
    let noun = kind.noun();
    let problem = format!("{noun} must return a `Result<T, E>`");
    let ReturnType::Type(_, ty) = &sig.output else {
        return Err(Error::new_spanned(&sig.ident, problem));
    };
    let Type::Path(path) = &**ty else {
        return Err(Error::new_spanned(ty, problem));
    };
    if path.path.get_ident().is_some_and(is_no_alias) {
        return Err(Error::new_spanned(ty, problem));
    }
    if let Some(last) = path.path.segments.last()
        && last.ident == "Result"
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
    {
        let types: Vec<&Type> = arguments
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
            .collect();
        if let [ok, error] = types[..] {
            return Ok((ok.clone(), error.clone()));
        }
    }
    // An alias: only the compiler can resolve it.
    let part = |part| parse2(quote_spanned!(ty.span()=> <#ty as ::perennial::typed::Returned>::#part));
    Ok((part(quote!(Output))?, part(quote!(Error))?))
}

/// Whether a name is that of a well-known type that is not a `Result`.
fn is_no_alias(name: &syn::Ident) -> bool {
    let name = name.to_string();
    name == "String" || name.starts_with(|first: char| first.is_ascii_lowercase())
}
