package record

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// around is a review about the object, which it calls a Secret.
func around(object []byte) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"UPDATE","resource":{"resource":"secrets"},"object":` +
		string(object) + `,"oldObject":` + string(object) + `}}`)
}

func seeds(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `"x"`, `[1,2.50,-0e+1,true,false,null]`, ` { "a" : [ ] , "b" : { } } `, `{"a\\":"\"","\\\"":1}`,
		`{"data":{"a":"b","c":null},"stringData":{"a":"b"},"metadata":{"annotations":{"x/last-applied":"y","a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b","x/last-applied":"y","y/last-applied":1}},"data":[],"stringData":1}`,
		`{"kind":"Secret","items":[{"kind":"TokenReview","spec":{"token":[1]}},{"kind":"Secret","data":1,"data":{"a":{}}}]}`,
		`{"data":{"a":"aHVudGVyMjI="},"b":["hunter22","x aHVudGVyMjI="],"hunter22":{"hunter22":null}}`,
		`{"annotations":{"x/last-applied":"{\"kind\":\"Secret\"}","y/last-applied":"H4sI","a":"b"}}`,
		`{"d\u0061ta":"\ud800","ſtringData":"` + "\xff" + `","KIND":"secret"}`,
		strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100),
	} {
		f.Add([]byte(s))
	}
}

// FuzzScan compares the scanner, whose texts are known to be valid, with the standard library's decoder.
func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		holdsSecret(string(raw)) // whatever it is
		secretsIn(string(raw))
		if !json.Valid(raw) {
			return
		}
		whole := text(raw)
		at := whole.all()
		if got := bytes.TrimSpace(raw); !bytes.Equal(whole.at(at), got) {
			t.Fatalf("%q ends at %q", got, whole.at(at))
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) == nil {
			seen := map[string]json.RawMessage{}
			for m := range whole.members(at) {
				var name string
				if err := json.Unmarshal(whole.at(m.name), &name); err != nil {
					t.Fatal(err)
				}
				seen[name] = whole.at(m.value)
			}
			if len(seen) != len(object) {
				t.Fatalf("%d members of %q, not %d", len(seen), raw, len(object))
			}
			for name, want := range object {
				if !bytes.Equal(seen[name], want) {
					t.Fatalf("%q of %q is %q, not %q", name, raw, seen[name], want)
				}
			}
		}
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			n := 0
			for e := range whole.elements(at) {
				if !bytes.Equal(whole.at(e), list[n]) {
					t.Fatalf("element %d of %q is %q", n, raw, whole.at(e))
				}
				n++
			}
			if n != len(list) {
				t.Fatalf("%d elements of %q", n, raw)
			}
		}
	})
}

// FuzzCompose has objects recorded as Secrets, whatever they are. What is written must be a recording, and nothing of a
// Secret may be left in it.
func FuzzCompose(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) {
			return
		}
		for _, hook := range []func(map[string]any){nil, func(o map[string]any) { delete(o, "kind") }} {
			r := &Recorder{options: Options{Redact: hook}}
			c := &call{received: time.Now()}
			c.question.text = around(object)
			more := ""
			if hook == nil { // which would be shown what the patch makes of an object
				patch := []byte(`[{"op":"add","path":"/x/password","value":` + string(object) + `}]`)
				more = `,"more":` + string(object) + `,"patch":"` + base64.StdEncoding.EncodeToString(patch) + `"`
			}
			c.answer.text = []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true` + more + `}}`)
			whole, err := r.compose(c)
			if err != nil {
				t.Fatalf("%q: %v", object, err)
			}
			if !json.Valid(whole.text) || !isOurs(fileName(whole.received, whole.about)) {
				t.Fatalf("%q became %q", object, whole.text)
			}
			cut, err := parseQuestion(c.question.text)
			if err != nil {
				t.Fatalf("%q: %v", object, err)
			}
			if decoded, err := parse(c.question.text); err != nil || !reflect.DeepEqual(cut, decoded) {
				t.Fatalf("%q is cut to %+v, not %+v: %v", object, cut, decoded, err)
			}
			d, err := parse(whole.text)
			if err != nil || d.Request == nil || d.Response == nil || d.Own == nil {
				t.Fatalf("%q became %q: %v", object, whole.text, err)
			}
			if hook == nil && !json.Valid(d.Response.Patch) {
				t.Fatalf("the patch of %q became %q", object, d.Response.Patch)
			}
			for _, raw := range [][]byte{d.Request.Object.Raw, d.Request.OldObject.Raw} {
				var left map[string]any
				if json.Unmarshal(raw, &left) != nil {
					continue
				}
				for name, value := range left {
					if strings.EqualFold(name, "data") || strings.EqualFold(name, "stringData") {
						checkPlaceholders(t, value)
					}
				}
			}
		}
	})
}

// FuzzScrubbed hides a value in a text, in every spelling. Nothing of it may be left.
func FuzzScrubbed(f *testing.F) {
	f.Add("m4rk3r-hunter2", "a%2", "x=")
	f.Add("a b/c+d&e%f", "Basic ", "")
	f.Add("m4rk3r-hunter2", "x \n\n\n\n\n\n\n\n\na", "\n%")
	f.Add("\xff\x00\n\r ,1", "1 ", "AA==")
	f.Fuzz(func(t *testing.T, value, before, after string) {
		v := values{}
		v.addPlain(value)
		if len(value) < leastValue || strings.Contains(Placeholder, value) || strings.Contains(inBase64, value) || strings.Contains(inHex, value) {
			return
		}
		for name, spelt := range map[string]string{
			"as it is": value, "base64": base64.StdEncoding.EncodeToString([]byte(value)), "base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(value)),
			"base64 of more":   base64.StdEncoding.EncodeToString([]byte(before + value + after)),
			"base64 of base64": base64.StdEncoding.EncodeToString([]byte(before + base64.RawStdEncoding.EncodeToString([]byte(value)))),
			"query":            "?" + url.QueryEscape(value), "path": "/" + url.PathEscape(value), "hexadecimal": hex.EncodeToString([]byte(value)),
			"bytes": fmt.Sprint([]byte(before + value + after)), "bytes in JSON": strings.ReplaceAll(fmt.Sprint([]byte(value)), " ", ","),
		} {
			if got := v.scrubbed(before + "&" + spelt + "&" + after); strings.Contains(got, spelt) {
				t.Errorf("%s: %q, in %q, is left in %q", name, value, spelt, got)
			}
		}
	})
}

func checkPlaceholders(t *testing.T, value any) {
	t.Helper()
	switch value := value.(type) {
	case nil:
	case map[string]any:
		for _, v := range value {
			if v != nil && v != Placeholder && v != strings.Trim(inData, `"`) {
				t.Fatalf("%v is left", v)
			}
		}
	default:
		if value != Placeholder && value != strings.Trim(inData, `"`) {
			t.Fatalf("%v is left", value)
		}
	}
}
