//! Charts as inline SVG: lines over an axis, or groups of bars.

use std::fmt::Write as _;

use serde_json::{Value, json};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 52.0;
/// A colour for each product, in the order in which products are known.
const COLOURS: [(&str, &str); 7] = [
    ("Penstock", "#0a7d5c"),
    ("Valkey", "#6a4fd0"),
    ("Redis", "#cc3d3d"),
    ("kevy", "#d58a00"),
    ("memcached", "#2874b8"),
    ("PostgreSQL", "#8c5a3c"),
    ("disk", "#6b7280"),
];
const OTHER: &str = "#7a7a7a";

/// One line of a chart, or the bars of one colour.
pub struct Series {
    /// The product first; a single letter at the end is its class.
    pub name: String,
    /// Of lines: where on the axis. Of bars: the number of the group.
    pub points: Vec<(f64, f64)>,
}

/// What the axis below shows.
pub enum Axis {
    /// Numbers, evenly.
    Even,
    /// Numbers by their powers.
    Powers,
    /// Groups of bars, by their names.
    Groups(Vec<String>),
}

pub struct Chart {
    pub title: String,
    pub below: String,
    pub beside: String,
    pub axis: Axis,
    /// Whether the upright axis shows powers, for figures that lie far apart.
    pub is_by_powers: bool,
    pub series: Vec<Series>,
}

/// From figures to places on the page.
struct Scale {
    from: f64,
    to: f64,
    is_by_powers: bool,
}

impl Scale {
    fn of(figures: impl Iterator<Item = f64>, is_by_powers: bool, is_from_zero: bool) -> Scale {
        let figures = figures.filter(|it| it.is_finite() && (!is_by_powers || *it > 0.0));
        let (least, most) = figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), it| {
            (a.min(it), b.max(it))
        });
        let (least, most) = match least <= most {
            true => (least, most),
            false => (1.0, 1.0),
        };
        let (from, to) = match (is_by_powers, is_from_zero) {
            (true, true) => (
                10f64.powf(least.log10().floor()),
                10f64.powf(most.log10().ceil()),
            ),
            (true, false) | (false, false) => (least, most),
            (false, true) => (0.0, most * 1.05),
        };
        let to = if to > from {
            to
        } else {
            from + from.abs().max(1.0)
        };
        Scale {
            from,
            to,
            is_by_powers,
        }
    }

    /// Between 0 and 1.
    fn place(&self, figure: f64) -> f64 {
        let place = match self.is_by_powers {
            true => {
                let figure = figure.max(self.from);
                (figure / self.from).log10() / (self.to / self.from).log10()
            }
            false => (figure - self.from) / (self.to - self.from),
        };
        place.clamp(0.0, 1.0)
    }

    /// Where lines stand, at most some ten.
    fn ticks(&self) -> Vec<f64> {
        if self.is_by_powers {
            let first = self.from.log10().ceil() as i32;
            let last = self.to.log10().floor() as i32;
            return (first..=last)
                .take(12)
                .map(|power| 10f64.powi(power))
                .collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough)
            .unwrap_or(power * 10.0);
        let first = (self.from / step).ceil();
        (0..12)
            .map(|at| (first + f64::from(at)) * step)
            .take_while(|tick| *tick <= self.to)
            .collect()
    }
}

impl Chart {
    pub fn svg(&self) -> String {
        let places = self.series.iter().flat_map(|it| &it.points);
        let upright = Scale::of(places.clone().map(|it| it.1), self.is_by_powers, true);
        let along = Scale::of(
            places.map(|it| it.0),
            matches!(self.axis, Axis::Powers),
            false,
        );
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(&self.title)
        );
        self.frame(&mut svg, &upright);
        match &self.axis {
            Axis::Groups(names) => self.bars(&mut svg, &upright, names),
            Axis::Even | Axis::Powers => self.lines(&mut svg, &upright, &along),
        }
        self.legend(&mut svg);
        svg.push_str("</svg>");
        svg
    }

    fn frame(&self, svg: &mut String, upright: &Scale) {
        for tick in upright.ticks() {
            let y = down(upright.place(tick));
            let (right, text) = (WIDTH - RIGHT, short(tick));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        let (middle_x, middle_y) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        let _ = write!(
            svg,
            "<text x=\"{middle_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(16 {middle_y:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - 10.0,
            escaped(&self.below),
            escaped(&self.beside)
        );
    }

    fn lines(&self, svg: &mut String, upright: &Scale, along: &Scale) {
        let mut shown: Vec<f64> = match self.axis {
            Axis::Powers => {
                let all = self.series.iter().flat_map(|it| &it.points);
                all.map(|it| it.0).collect()
            }
            _ => along.ticks(),
        };
        shown.sort_by(f64::total_cmp);
        shown.dedup();
        for tick in shown {
            under(svg, across(along.place(tick)), &short(tick));
        }
        for series in &self.series {
            let at = |&(x, y): &(f64, f64)| (across(along.place(x)), down(upright.place(y)));
            let path: Vec<String> = series
                .points
                .iter()
                .map(|point| {
                    let (x, y) = at(point);
                    format!("{x:.1},{y:.1}")
                })
                .collect();
            let (colour, dash) = (colour(&series.name), dash(&series.name));
            let _ = write!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dash}\"/>",
                path.join(" ")
            );
            for point in series.points.iter().take(400) {
                let ((x, y), told) = (at(point), self.told(&series.name, point.0, point.1));
                let _ = write!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\">\
                     <title>{told}</title></circle>"
                );
            }
        }
    }

    fn bars(&self, svg: &mut String, upright: &Scale, names: &[String]) {
        let room = (WIDTH - LEFT - RIGHT) / names.len().max(1) as f64;
        let width = room * 0.84 / self.series.len().max(1) as f64;
        for (number, name) in names.iter().enumerate() {
            under(svg, LEFT + room * (number as f64 + 0.5), name);
        }
        for (number, series) in self.series.iter().enumerate() {
            let (colour, opacity) = (colour(&series.name), opacity(&series.name));
            for &(group, figure) in &series.points {
                let x = LEFT + room * (group + 0.08) + width * number as f64;
                let y = down(upright.place(figure));
                let name = names.get(group as usize).map_or("", String::as_str);
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{colour}\" fill-opacity=\"{opacity}\"><title>{}, {}: {}</title></rect>",
                    (width - 1.0).max(0.5),
                    HEIGHT - BOTTOM - y,
                    escaped(&series.name),
                    escaped(name),
                    short(figure)
                );
            }
        }
    }

    fn told(&self, name: &str, x: f64, y: f64) -> String {
        let (x, y) = (short(x), short(y));
        escaped(&format!(
            "{name}: {y} ({}), at {x} ({})",
            self.beside, self.below
        ))
    }

    fn legend(&self, svg: &mut String) {
        let x = WIDTH - RIGHT + 16.0;
        for (number, series) in self.series.iter().enumerate() {
            let y = TOP + 10.0 + 19.0 * number as f64;
            let colour = colour(&series.name);
            let mark = match self.axis {
                Axis::Groups(_) => format!(
                    "<rect x=\"{x}\" y=\"{:.1}\" width=\"22\" height=\"10\" fill=\"{colour}\" \
                     fill-opacity=\"{}\"/>",
                    y - 9.0,
                    opacity(&series.name)
                ),
                _ => format!(
                    "<line x1=\"{x}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
                     stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
                    x + 22.0,
                    y - 4.0,
                    y - 4.0,
                    dash(&series.name)
                ),
            };
            let (at, name) = (x + 28.0, escaped(&series.name));
            let _ = write!(svg, "{mark}<text x=\"{at:.1}\" y=\"{y:.1}\">{name}</text>");
        }
    }

    pub fn json(&self) -> Value {
        let groups = match &self.axis {
            Axis::Groups(names) => json!(names),
            _ => Value::Null,
        };
        let series = self.series.iter();
        json!({
            "title": self.title,
            "below": self.below,
            "beside": self.beside,
            "groups": groups,
            "series": series
                .map(|it| json!({ "name": it.name, "points": it.points }))
                .collect::<Vec<_>>(),
        })
    }
}

fn across(place: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * place
}

fn down(place: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * place
}

fn under(svg: &mut String, x: f64, text: &str) {
    let (y, text) = (HEIGHT - BOTTOM + 17.0, escaped(text));
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
    );
}

fn colour(name: &str) -> &'static str {
    let known = COLOURS
        .into_iter()
        .find(|(product, _)| name.starts_with(product));
    known.map_or(OTHER, |(_, colour)| colour)
}

/// Lines of class S are whole, of E dashed, of V dotted.
fn dash(name: &str) -> &'static str {
    match name.rsplit(' ').next() {
        Some("V") => "2 4",
        Some("E") => "8 4",
        _ => "none",
    }
}

fn opacity(name: &str) -> &'static str {
    match name.rsplit(' ').next() {
        Some("V") => "0.45",
        Some("E") => "0.7",
        _ => "1",
    }
}

/// A figure with three digits and a letter for its thousands.
fn short(figure: f64) -> String {
    let (scaled, letter) = match figure.abs() {
        it if it >= 1e9 => (figure / 1e9, "G"),
        it if it >= 1e6 => (figure / 1e6, "M"),
        it if it >= 1e3 => (figure / 1e3, "k"),
        _ => (figure, ""),
    };
    let decimals = match scaled.abs() {
        it if it >= 100.0 || it == 0.0 => 0,
        it if it >= 10.0 => 1,
        it if it >= 1.0 => 2,
        it => (2.0 - it.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{scaled:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{letter}")
}

/// Text that stands in a page as it is.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(axis: Axis) -> Chart {
        Chart {
            title: "a <b>".into(),
            below: "depth".into(),
            beside: "op/s".into(),
            axis,
            is_by_powers: false,
            series: vec![Series {
                name: "Penstock S".into(),
                points: vec![(0.0, 1000.0), (1.0, 4000.0)],
            }],
        }
    }

    #[test]
    fn every_point_and_every_bar_is_drawn_and_told() {
        let lines = chart(Axis::Even).svg();
        assert_eq!(lines.matches("<circle").count(), 2);
        assert!(lines.contains("a &lt;b&gt;") && !lines.contains("a <b>"));
        assert!(lines.contains("Penstock S: 4k (op/s), at 1 (depth)"));
        let bars = chart(Axis::Groups(vec!["P1".into(), "P16".into()])).svg();
        assert_eq!(bars.matches("<title>").count(), 2);
        assert!(bars.contains("Penstock S, P16: 4k"));
    }

    #[test]
    fn higher_figures_stand_higher_on_both_scales() {
        for is_by_powers in [false, true] {
            let scale = Scale::of([1.0, 10.0, 250.0].into_iter(), is_by_powers, true);
            assert!(scale.place(1.0) < scale.place(10.0));
            assert!(scale.place(10.0) < scale.place(250.0));
            assert!(scale.place(250.0) <= 1.0);
            assert!(scale.ticks().len() >= 2, "{:?}", scale.ticks());
        }
    }

    #[test]
    fn a_chart_of_nothing_or_of_one_figure_is_drawn() {
        let mut one = chart(Axis::Powers);
        one.series[0].points = vec![(1.0, 5.0)];
        assert!(!one.svg().contains("NaN"));
        one.series.clear();
        assert!(!one.svg().contains("NaN"));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(short(1_234_567.0), "1.23M");
        assert_eq!(short(500_000.0), "500k");
        assert_eq!(short(0.25), "0.25");
        assert_eq!(short(0.000_12), "0.00012");
        assert_eq!(short(0.0), "0");
        assert_eq!(short(100.0), "100");
    }
}
