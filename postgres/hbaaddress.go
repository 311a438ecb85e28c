package postgres

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// parseAddress reads the address, and the mask that follows one without its length.
func (l *hbaLine) parseAddress(fields *[]hbaField) error {
	if len(*fields) > 0 {
		l.addressRaw = (*fields)[0].raw
	}
	var err error
	if l.address, err = single(fields, "address"); err != nil || l.address.isAddressKeyword() {
		return err
	}
	host, length, hasLength := strings.Cut(l.address.text, "/")
	family := numericFamily(host)
	switch {
	case hasLength && family == 0:
		return fmt.Errorf("has the address %s, which is not an address with its length, such as 10.0.0.0/8 or fd00::/8", show(l.address.text))
	case hasLength:
		bits, ok := parseLong(length)
		if !ok || bits < 0 || bits > int64(family) {
			return fmt.Errorf("has the address %s, whose length must be from 0 to %d", show(l.address.text), family)
		}
		return nil
	case family == 0:
		return nil // A host name: PostgreSQL takes anything.
	case len(*fields) == 0:
		return fmt.Errorf("ends after the address %s; write its length too, such as %s/%d", show(host), host, family)
	}
	l.addressRaw += " " + (*fields)[0].raw
	if l.mask, err = single(fields, "mask"); err != nil {
		return err
	}
	if numericFamily(l.mask.text) != family {
		return fmt.Errorf("has the address %s without its length; write it as %s/%d", show(host), host, family)
	}
	return nil
}

func (t hbaToken) isAddressKeyword() bool { return t.is("all") || t.is("samehost") || t.is("samenet") }

// numericFamily is how many bits an address has, 0 if it is none. Everything that the C library takes for an address is
// one: 10 and 0x7f.1 too.
func numericFamily(text string) int {
	if strings.Contains(text, ":") {
		if a, err := netip.ParseAddr(text); err == nil && a.Is6() {
			return 128
		}
		return 0
	}
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return 0
	}
	for i, part := range parts {
		if !numericPart.MatchString(part) {
			return 0
		}
		n, err := strconv.ParseUint(part, 0, 64)
		most := uint64(255)
		if i == len(parts)-1 {
			most = 1<<(8*(5-len(parts))) - 1
		}
		if err != nil || n > most {
			return 0
		}
	}
	return 32
}

// numericPart is a number as C writes it: hexadecimal, octal or decimal.
var numericPart = regexp.MustCompile(`^(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)$`)

// parseLong reads a decimal number as strtol does.
func parseLong(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimLeft(text, " \t\n\v\f\r"), 10, 64)
	return n, err == nil
}

// prefix is the range of an address in the forms that the operator accepts.
func (l *hbaLine) prefix() (netip.Prefix, bool) {
	if l.mask.text == "" {
		p, err := netip.ParsePrefix(l.address.text)
		return p.Masked(), err == nil
	}
	address, err := netip.ParseAddr(l.address.text)
	mask, maskErr := netip.ParseAddr(l.mask.text)
	if err != nil || maskErr != nil || address.Zone() != "" || mask.Zone() != "" {
		return netip.Prefix{}, false
	}
	bits, ended := 0, false
	for _, b := range mask.AsSlice() {
		for i := 7; i >= 0; i-- {
			one := b>>i&1 == 1
			if one && ended {
				return netip.Prefix{}, false
			}
			if ended = !one; one {
				bits++
			}
		}
	}
	return netip.PrefixFrom(address, bits).Masked(), true
}

// hostName is a DNS name, or with a dot before it all names that end in it.
var hostName = regexp.MustCompile(`^\.?([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

// addressPolicy says why the operator does not accept an address that PostgreSQL would.
func (l *hbaLine) addressPolicy() string {
	if l.address.isAddressKeyword() {
		return ""
	}
	const forms = "an address with its length such as 10.0.0.0/8, all, samehost, samenet, a host name, or .domain"
	if strings.Contains(l.address.text, "/") || l.mask.text != "" {
		if _, ok := l.prefix(); !ok {
			return fmt.Sprintf("has the address %s, which can be misread; write %s", show(l.address.text), forms)
		}
		return ""
	}
	if len(l.address.text) > 253 || !hostName.MatchString(l.address.text) {
		return fmt.Sprintf("has the address %s; accepted are %s", show(l.address.text), forms)
	}
	return ""
}
