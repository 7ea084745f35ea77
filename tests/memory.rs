//! What filters weigh: bits per item at the promised rate, the overhead of a small one, and the cost of growing.

use bloomery::{Cell, Filter, LayoutChoice, Spec};

fn bits_per_item(capacity: u64, error_rate: f64, layout: LayoutChoice) -> f64 {
    let spec = Spec { layout, ..Spec::fixed(capacity, error_rate) };
    Filter::bytes_for(&spec).unwrap() as f64 * 8.0 / capacity as f64
}

#[test]
fn bits_per_item_at_the_promised_rate() {
    let figures = [
        (0.01, LayoutChoice::Blocked, 9.95),
        (0.001, LayoutChoice::Blocked, 15.6),
        (0.01, LayoutChoice::Classic, 9.62),
        (0.001, LayoutChoice::Classic, 14.42),
    ];
    for (error_rate, layout, target) in figures {
        for capacity in [100_000, 1_000_000, 10_000_000, 1_000_000_000] {
            let bits = bits_per_item(capacity, error_rate, layout);
            println!("{layout:?} {capacity} at {error_rate}: {bits:.3} bits an item, at most {target}");
            assert!(bits <= target);
            // Below the information limit something would be wrong with the sum.
            assert!(bits > -error_rate.log2() / std::f64::consts::LN_2);
        }
    }
}

/// Counters cost their width and nothing else.
#[test]
fn counters_cost_their_width() {
    for (cell, width) in [(Cell::Counter4, 4.0), (Cell::Counter8, 8.0), (Cell::Counter16, 16.0)] {
        let spec = Spec { cell, layout: LayoutChoice::Classic, ..Spec::fixed(1_000_000, 0.01) };
        let bits = Filter::bytes_for(&spec).unwrap() as f64 * 8.0 / 1e6;
        assert!(bits <= 9.62 * width, "{cell:?}: {bits}");
    }
}

/// A server with a million small keys pays this a million times: the filter with the default options, without its cells.
#[test]
fn an_empty_default_filter() {
    let filter = Filter::new(Spec::scaling(100, 0.01)).unwrap();
    println!("{} bytes, of which {} are cells", filter.allocated(), filter.bytes());
    assert!(filter.allocated() <= 400, "{}", filter.allocated());
}

/// What `allocated` says is the cells and little more, for large filters of every kind.
#[test]
fn large_filters_have_no_overhead_to_speak_of() {
    let specs = [Spec::fixed(100_000, 0.01), Spec::counting(100_000, 0.01), Spec::window(100_000, 0.01, 8)];
    for spec in specs {
        let filter = Filter::new(spec).unwrap();
        assert_eq!(filter.bytes(), Filter::bytes_for(&spec).unwrap());
        let overhead = filter.allocated() as f64 / filter.bytes() as f64 - 1.0;
        assert!((0.0..0.005).contains(&overhead), "{overhead}");
    }
}

/// From the default capacity of 100 to 10 million items at 1 %, against 53.5 MB when every layer halves its rate.
#[test]
fn growing_from_the_default_capacity() {
    let mut filter = Filter::new(Spec::scaling(100, 0.01)).unwrap();
    while filter.capacity() < 10_000_000 {
        filter.grow().unwrap();
    }
    println!("{} layers, {} bytes", filter.layers().len(), filter.allocated());
    assert!(filter.allocated() as f64 <= 0.6 * 53.5e6, "{}", filter.allocated());
}
