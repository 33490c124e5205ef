package prompt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

// MaxBytes is the longest prompt. As an argument the kernel may take less.
const MaxBytes = 1 << 20

// ReadFile is the prompt that the file at path holds, all of it. Links are
// followed. An error is one of the file layer and holds nothing of the file, or
// an *effects.PromptTextError.
func ReadFile(path string) (string, error) {
	data, err := files.Read(path, MaxBytes)
	if err != nil {
		return "", fmt.Errorf("read the startup prompt: %w", err)
	}
	return string(data), checkText(string(data))
}

// checkText refuses what no way can deliver.
func checkText(text string) error {
	switch {
	case text == "":
		return &effects.PromptTextError{Why: "is empty"}
	case len(text) > MaxBytes:
		return &effects.PromptTextError{Why: fmt.Sprintf("has more than %d bytes", MaxBytes)}
	case strings.IndexByte(text, 0) >= 0:
		return &effects.PromptTextError{Why: "holds a NUL"}
	}
	return nil
}

// pasteText is the text as it is pasted: line ends as \n, none at the close,
// since Enter is pressed for it. Control characters are keys to a program, and
// the end of the brackets (ESC [ 201 ~, or with the one character U+009B) would
// let the rest be typed: all but tabs and line ends are refused.
func pasteText(text string) (string, error) {
	if err := checkText(text); err != nil {
		return "", err
	}
	if !utf8.ValidString(text) {
		return "", &effects.PromptTextError{Why: "is not valid UTF-8, so it cannot be pasted; use delivery File"}
	}
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, c := range text {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return "", &effects.PromptTextError{Why: fmt.Sprintf("holds the control character %U at byte %d, so it cannot be pasted; take it out, or use delivery File", c, i)}
		}
	}
	if squeeze(text) == "" {
		return "", &effects.PromptTextError{Why: "holds nothing that could be seen on a screen, so it cannot be pasted; use delivery File"}
	}
	return text, nil
}
