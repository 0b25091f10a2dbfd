//! The command's parts: campaigns, the corpus of past failures, shrinking, and arguments.

mod arguments;
mod campaigns;
mod corpora;
mod shrinking;
