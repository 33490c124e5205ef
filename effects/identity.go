package effects

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// FileIdentity names one file or folder for good, as a path does not.
type FileIdentity struct {
	Dev, Ino uint64
	// Birth is when the inode was made, in nanoseconds; 0 when that is not known.
	Birth int64
	// Boot at which the device had that number; empty when that is not known.
	Boot string
}

// String is DEVICE:INODE, with :BIRTH and :BOOT as far as they are known: the
// format of v1alpha1.FileIdentity.
func (i FileIdentity) String() string {
	text := fmt.Sprintf("%d:%d", i.Dev, i.Ino)
	if i.Birth != 0 || i.Boot != "" {
		text += ":" + strconv.FormatInt(i.Birth, 10)
	}
	if i.Boot != "" {
		text += ":" + strings.ToLower(i.Boot)
	}
	return text
}

var fileIdentity = regexp.MustCompile(`^([0-9]+):([0-9]+)(?::([0-9]+)(?::([0-9a-f-]+))?)?$`)

// ParseFileIdentity reads back what String wrote.
func ParseFileIdentity(text string) (FileIdentity, error) {
	m := fileIdentity.FindStringSubmatch(text)
	if m == nil {
		return FileIdentity{}, fmt.Errorf("%q is no identity of a file", text)
	}
	i := FileIdentity{Boot: m[4]}
	var errs [3]error
	i.Dev, errs[0] = strconv.ParseUint(m[1], 10, 64)
	i.Ino, errs[1] = strconv.ParseUint(m[2], 10, 64)
	if m[3] != "" {
		i.Birth, errs[2] = strconv.ParseInt(m[3], 10, 64)
	}
	for _, err := range errs {
		if err != nil {
			return FileIdentity{}, fmt.Errorf("%q is no identity of a file: %w", text, err)
		}
	}
	return i, nil
}

// Same tells whether o, which was seen, is what i names. A device may have
// another number at another boot; then inode and birth decide.
func (i FileIdentity) Same(o FileIdentity) bool {
	if i.Ino != o.Ino || i.Birth != 0 && o.Birth != 0 && i.Birth != o.Birth {
		return false
	}
	rebooted := i.Boot != "" && o.Boot != "" && !strings.EqualFold(i.Boot, o.Boot)
	return i.Dev == o.Dev || rebooted && i.Birth != 0 && i.Birth == o.Birth
}
