//! How wide a text is on a terminal, and where to break it.

/// Columns of a terminal that `text` takes.
pub(super) fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Two columns for the scripts of East Asia and for pictures, none for marks that stand on the
/// letter before, one for the rest. An ambiguous letter may shift its line, and no more.
fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// `text` in lines of at most `width` columns: broken at spaces, and inside a word that is wider
/// than a line. Joined, the lines hold every letter.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let needs = text_width(word);
        if used > 0 && used + 1 + needs <= width {
            push(&mut lines, " ");
            used += 1;
        } else if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let needs = char_width(c);
            if used + needs > width && used > 0 {
                lines.push(String::new());
                used = 0;
            }
            push(&mut lines, c.encode_utf8(&mut [0; 4]));
            used += needs;
        }
    }
    lines
}

fn push(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_every_letter() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 3), ["one", "two", "thr", "ee"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("東京都", 4), ["東京", "都"]);
        assert_eq!(wrap("東", 1), ["東"]);
        assert_eq!(text_width("e\u{301}東"), 3);
    }
}
