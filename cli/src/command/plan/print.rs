//! Prints a plan for people.

use crate::output::Table;
use bloomery_plan::{Plan, Rows};
use std::io::Write;

pub(super) fn print(plan: &Plan) -> anyhow::Result<()> {
    let words = plan.words();
    let mut text = format!("{}\n\n", words.title);
    for (name, value) in words.filter {
        text.push_str(&format!("  {name:<14}{value}\n"));
    }
    if !words.growth.rows.is_empty() {
        text.push_str(&format!("\nAs it grows\n\n{}", table(words.growth)));
    }
    text.push_str("\nThe kinds, each for the same number of items\n\n");
    text.push_str(&format!("{}\n{}", table(words.kinds), table(words.commands)));
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Renders the rows as a table, indented.
fn table(rows: Rows) -> String {
    let mut table = Table::new(rows.columns);
    rows.rows.into_iter().for_each(|row| table.row(row));
    table.render().lines().map(|line| format!("  {line}\n")).collect()
}
