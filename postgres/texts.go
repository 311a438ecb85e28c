package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// multiplesOf16 are numbers of buffers that PostgreSQL arranges in banks of 16.
var multiplesOf16 = []string{
	"commit_timestamp_buffers", "multixact_member_buffers", "multixact_offset_buffers", "notify_buffers",
	"serializable_buffers", "subtransaction_buffers", "transaction_buffers",
}

// words are the words that lists may consist of, in lower case.
var words = map[string][]string{
	"createrole_self_grant":            {"set", "inherit"},
	"restrict_nonsystem_relation_kind": {"view", "foreign-table"},
	"log_connections": {
		"all", "receipt", "authentication", "authorization", "setup_durations",
		"on", "true", "yes", "1", "off", "false", "no", "0", "",
	},
}

// aloneInList are words that stand alone.
var aloneInList = []string{"on", "true", "yes", "1", "off", "false", "no", "0", ""}

// checkText judges settings that are texts, as far as it can be told without the server's files.
func (p parameter) checkText(value string) string {
	switch p.name {
	case "datestyle":
		return checkDateStyle(value)
	case "default_table_access_method":
		if value == "" {
			return "must be the name of a table access method, such as heap"
		}
	case "search_path", "temp_tablespaces", "output_plugin_libraries":
		if _, ok := splitIdentifiers(value); !ok {
			return "must be names with commas between them; names with other characters than letters, digits and underscores in double quotes"
		}
	}
	accepted, isList := words[p.name]
	if !isList {
		return ""
	}
	items, ok := splitIdentifiers(value)
	for _, item := range items {
		ok = ok && slices.Contains(accepted, strings.ToLower(item)) && (len(items) == 1 || !slices.Contains(aloneInList, strings.ToLower(item)))
	}
	if !ok {
		return fmt.Sprintf("must be words with commas between them, of: %s", strings.Join(slices.DeleteFunc(slices.Clone(accepted),
			func(word string) bool { return slices.Contains(aloneInList, word) }), ", "))
	}
	return ""
}

// splitIdentifiers reads a list of identifiers as PostgreSQL does.
func splitIdentifiers(list string) (items []string, ok bool) {
	rest := trimSpace(list)
	for rest != "" {
		var item string
		if strings.HasPrefix(rest, `"`) {
			end := 1
			for ; end < len(rest); end++ {
				if rest[end] == '"' {
					if !strings.HasPrefix(rest[end+1:], `"`) {
						break
					}
					end++
				}
			}
			if end >= len(rest) {
				return nil, false
			}
			item, rest = strings.ReplaceAll(rest[1:end], `""`, `"`), rest[end+1:]
		} else {
			end := strings.IndexAny(rest, ", \t\n\r\v\f")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, false
			}
			item, rest = rest[:end], rest[end:]
		}
		items = append(items, item)
		rest = trimSpace(rest)
		if rest == "" {
			break
		}
		next, isComma := strings.CutPrefix(rest, ",")
		if rest = trimSpace(next); !isComma || rest == "" {
			return nil, false
		}
	}
	return items, true
}

func trimSpace(s string) string { return strings.Trim(s, " \t\n\r\v\f") }

// checkDateStyle accepts at most one style of output and one order of day, month and year.
func checkDateStyle(value string) string {
	const wrong = "must be one of ISO, SQL, Postgres and German, and one of DMY, MDY and YMD, with a comma between them"
	items, ok := splitIdentifiers(value)
	if !ok {
		return wrong
	}
	styles, orders := map[string]bool{}, map[string]bool{}
	for _, item := range items {
		item = strings.ToUpper(item)
		switch {
		case item == "ISO", item == "SQL", item == "GERMAN":
			styles[item] = true
		case strings.HasPrefix(item, "POSTGRES"):
			styles["POSTGRES"] = true
		case item == "YMD":
			orders[item] = true
		case item == "DMY", strings.HasPrefix(item, "EURO"):
			orders["DMY"] = true
		case item == "MDY", item == "US", strings.HasPrefix(item, "NONEURO"):
			orders["MDY"] = true
		case item == "DEFAULT":
		default:
			return wrong
		}
	}
	if len(styles) > 1 || len(orders) > 1 {
		return wrong
	}
	return ""
}
