//! The live view: the table on the terminal's other screen, until `q`.

use super::snapshot::Process;
use super::view::{self, Look, Row};
use anyhow::Result;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{cursor, execute, queue};
use std::io::{self, Stdout, Write};
use std::time::{Duration, Instant};

/// The terminal; dropping this restores its state.
struct Screen {
    out: Stdout,
}

impl Screen {
    fn open() -> Result<Screen> {
        terminal::enable_raw_mode()?;
        let mut screen = Screen { out: io::stdout() };
        execute!(screen.out, terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    fn draw(&mut self, rows: &[Row], from: usize, interval: Duration) -> Result<()> {
        let (width, height) = terminal::size()?;
        let (title, rest) = rows.split_first().map_or((&[][..], rows), |_| rows.split_at(1));
        let room = usize::from(height).saturating_sub(2);
        queue!(self.out, BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
        for row in title.iter().chain(rest.iter().skip(from).take(room)) {
            self.line(row, width.into())?;
        }
        queue!(
            self.out,
            Clear(ClearType::FromCursorDown),
            cursor::MoveTo(0, height.saturating_sub(1))
        )?;
        let left = rest.len().saturating_sub(from + room);
        let more = if left > 0 { format!(", {left} lines below") } else { String::new() };
        let keys = format!(
            "every {} s{more}   q quit   up, down, page up, page down scroll",
            interval.as_secs_f64()
        );
        queue!(self.out, SetAttribute(Attribute::Dim), Print(cut(&keys, width.into())))?;
        queue!(self.out, SetAttribute(Attribute::Reset), EndSynchronizedUpdate)?;
        Ok(self.out.flush()?)
    }

    fn line(&mut self, row: &Row, width: usize) -> Result<()> {
        let attribute = match row.look {
            Look::Title | Look::Endpoint => Attribute::Bold,
            Look::Header => Attribute::Reverse,
            Look::Flow => Attribute::NormalIntensity,
            Look::Remark => Attribute::Dim,
        };
        let padded = if row.look == Look::Header {
            format!("{:<width$}", row.text)
        } else {
            row.text.clone()
        };
        queue!(
            self.out,
            SetAttribute(attribute),
            Print(cut(&padded, width)),
            SetAttribute(Attribute::Reset)
        )?;
        queue!(self.out, Clear(ClearType::UntilNewLine), cursor::MoveToNextLine(1))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing helps when the terminal is gone.
        let _ = execute!(self.out, cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// The first `width` characters. None of them is wider than one column, nor without width.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Draws until the user quits.
///
/// # Errors
/// If the terminal is unusable, or there is nothing to show.
pub fn run(host: &str, interval: Duration, look: impl Fn() -> Result<Vec<Process>>) -> Result<()> {
    let mut before = look()?;
    let mut screen = Screen::open()?;
    let mut from = 0;
    let mut rows = view::rows(host, &[], &before);
    loop {
        screen.draw(&rows, from, interval)?;
        let end = Instant::now() + interval;
        while event::poll(end.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match pressed(key) {
                    Pressed::Quit => return Ok(()),
                    Pressed::Scroll(lines) => {
                        let last = rows.len().saturating_sub(2);
                        from = from.saturating_add_signed(lines).min(last);
                    }
                    Pressed::Nothing => {}
                },
                _ => {}
            }
            screen.draw(&rows, from, interval)?;
        }
        let now = look()?;
        rows = view::rows(host, &before, &now);
        from = from.min(rows.len().saturating_sub(2));
        before = now;
    }
}

/// The command of a key.
enum Pressed {
    Quit,
    Scroll(isize),
    Nothing,
}

fn pressed(key: KeyEvent) -> Pressed {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Pressed::Quit,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Pressed::Quit,
        KeyCode::Up | KeyCode::Char('k') => Pressed::Scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => Pressed::Scroll(1),
        KeyCode::PageUp => Pressed::Scroll(-20),
        KeyCode::PageDown | KeyCode::Char(' ') => Pressed::Scroll(20),
        KeyCode::Home => Pressed::Scroll(isize::MIN),
        KeyCode::End => Pressed::Scroll(isize::MAX),
        _ => Pressed::Nothing,
    }
}
