package patch

// This file writes operations as JSON, as encoding/json would.

import (
	"bytes"
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"
)

// AppendJSON appends a patch as json.Marshal would write it, but without reflection. It is meant for operations from
// Diff, whose values are JSON already. Any other value that cannot be marshalled leaves the patch malformed, so that
// it is refused as a whole instead of being applied in part.
func AppendJSON(dst []byte, ops []jsonpatch.Operation) []byte {
	dst = append(dst, '[')
	for i := range ops {
		op := &ops[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"op":`...)
		dst = appendString(dst, op.Operation)
		dst = append(dst, `,"path":`...)
		dst = appendString(dst, op.Path)
		if op.Value != nil || op.Operation == "add" || op.Operation == "replace" {
			dst = append(dst, `,"value":`...)
			dst = appendOperand(dst, op.Value)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendOperand(dst []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return appendString(dst, v)
	case json.RawMessage:
		if v == nil {
			return append(dst, "null"...)
		}
		if !bytes.ContainsAny(v, "<>&\u2028\u2029") {
			return append(dst, v...)
		}
		return appendEscaped(dst, v)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return dst
	}
	return append(dst, text...)
}
