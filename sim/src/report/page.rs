//! The page: one HTML file with everything in it.

use super::Group;
use super::figures::{ALL, Figure};
use super::plots::{Plot, PlotError, chosen};
use std::fmt::Write as _;

/// How the page looks.
const STYLE: &str = "\
body{font:15px/1.5 sans-serif;color:#222;background:#fff;max-width:1000px;margin:24px auto;padding:0 16px}\
h1{font-size:24px;margin-bottom:4px}h2{font-size:18px;margin:36px 0 4px}\
p{margin:4px 0 8px}.note{color:#555}\
svg{max-width:100%;height:auto;display:block}\
.wide{overflow-x:auto}\
table{border-collapse:collapse;font-size:14px}\
th,td{padding:3px 12px;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}\
td.best{font-weight:bold}\
.key{display:inline-block;margin-right:18px}\
.key i{display:inline-block;width:12px;height:12px;margin-right:6px}\
pre{background:#f4f4f4;padding:12px;overflow-x:auto;font-size:13px}";

/// A page about runs.
pub struct Page<'a> {
    /// What ran.
    pub title: &'a str,
    /// A sentence on it: network, work, seeds.
    pub about: &'a str,
    /// The runs, by scheme.
    pub groups: &'a [Group],
    /// The scenario's text.
    pub scenario: &'a str,
}

/// Text in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
    }
    out
}

impl Page<'_> {
    /// The page's text.
    ///
    /// # Errors
    /// A plot cannot be drawn.
    pub fn html(&self) -> Result<String, PlotError> {
        let title = escaped(self.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n",
            escaped(self.about)
        );
        out.push_str(&self.unfinished());
        out.push_str(&self.table());
        for plot in self.plots()? {
            section(&mut out, &plot);
        }
        let _ = write!(out, "<h2>Scenario</h2>\n<pre>{}</pre>\n", escaped(self.scenario));
        out.push_str("</body>\n</html>\n");
        Ok(out)
    }

    fn unfinished(&self) -> String {
        let all = self.groups.iter().flat_map(|group| {
            group.unfinished.iter().map(move |why| (group.name.as_str(), why.as_str()))
        });
        let line = |(name, why)| format!("<p><b>{}</b>: {}</p>\n", escaped(name), escaped(why));
        all.map(line).collect()
    }

    /// Groups that have a run.
    fn done(&self) -> Vec<Group> {
        self.groups.iter().filter(|group| !group.runs.is_empty()).cloned().collect()
    }

    fn table(&self) -> String {
        let seeds = self.groups.iter().map(|group| group.runs.len()).max().unwrap_or(0);
        let mut out = "<h2>Summary</h2>\n".to_owned();
        if seeds > 1 {
            let _ = writeln!(out, "<p class=\"note\">Medians over {seeds} seeds.</p>");
        }
        out.push_str("<div class=\"wide\"><table>\n<tr><th></th>");
        for group in self.groups {
            let _ = write!(out, "<th>{}</th>", escaped(&group.name));
        }
        out.push_str("</tr>\n");
        for figure in ALL {
            out.push_str(&self.row(figure));
        }
        out.push_str("</table></div>\n");
        out
    }

    fn row(&self, figure: &Figure) -> String {
        let values: Vec<Option<f64>> =
            self.groups.iter().map(|group| figure.median(group)).collect();
        let cell = |value: &Option<f64>| {
            let is_best = value.is_some_and(|value| figure.is_best(value, &values));
            let class = if is_best && values.len() > 1 { " class=\"best\"" } else { "" };
            format!("<td{class}>{}</td>", figure.text(*value))
        };
        let cells: String = values.iter().map(cell).collect();
        format!("<tr><td>{}</td>{cells}</tr>\n", escaped(figure.name))
    }

    /// All plots. One group shows its messages over time, several are compared.
    fn plots(&self) -> Result<Vec<Plot>, PlotError> {
        let groups = self.done();
        let Some(first) = groups.first() else { return Ok(Vec::new()) };
        let mut plots = vec![chosen::completions(&groups)?, chosen::slowdowns(&groups)?];
        if groups.len() > 1 {
            plots.insert(0, chosen::comparison(&groups)?);
        }
        plots.push(chosen::arriving(&groups)?);
        let series = &first.runs[0].series;
        if groups.len() == 1 {
            plots.push(chosen::throughput(series)?);
            plots.push(chosen::windows(series)?);
        }
        for group in &groups {
            plots.push(chosen::queues(&group.name, &group.runs[0].series)?);
        }
        if groups.len() == 1 {
            plots.push(chosen::utilisation(&first.name, series)?);
            plots.push(chosen::paths(series)?);
        }
        plots.push(chosen::reordering(&groups)?);
        plots.push(chosen::repeats(&groups)?);
        Ok(plots)
    }
}

fn section(out: &mut String, plot: &Plot) {
    let Plot { title, note, legend, svg } = plot;
    let _ = write!(out, "<h2>{}</h2>\n<p class=\"note\">{}</p>\n", escaped(title), escaped(note));
    if legend.len() > 1 {
        out.push_str("<p>");
        for (name, colour) in legend {
            let name = escaped(name);
            let _ = write!(
                out,
                "<span class=\"key\"><i style=\"background:{colour}\"></i>{name}</span>"
            );
        }
        out.push_str("</p>\n");
    }
    out.push_str(svg);
    out.push('\n');
}
