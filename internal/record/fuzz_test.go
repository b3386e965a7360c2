package record

// Whatever an object, a text or a value is: a recording can be read, and holds nothing of a Secret.

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

// around is a review about the object, of a resource.
func around(object []byte, resource string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"UPDATE","resource":{"resource":"` + resource + `"},"object":` +
		string(object) + `,"oldObject":` + string(object) + `}}`)
}

func answerTo(more string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true` + more + `}}`)
}

func seeds(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `"x"`, `[1,2.50,-0e+1,true,false,null]`, ` { "a" : [ ] , "b" : { } } `, `{"a\\":"\"","\\\"":1}`,
		`{"data":{"a":"b","c":null},"stringData":{"a":"b"},"metadata":{"annotations":{"x/last-applied":"y","a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b","x/last-applied":"y","y/last-applied":1}},"data":[],"stringData":1}`,
		`{"kind":"Secret","items":[{"kind":"TokenReview","spec":{"token":[1]}},{"kind":"Secret","data":1,"data":{"a":{}}}]}`,
		`{"data":{"a":"aHVudGVyMjI="},"b":["hunter22","x aHVudGVyMjI="],"hunter22":{"hunter22":null}}`,
		`{"annotations":{"x/last-applied":"{\"kind\":\"Secret\",\"data\":{\"a\":\"b\"}}","y/last-applied":"H4sI","a":"b"}}`,
		`{"d\u0061ta":"\ud800","ſtringData":"` + "\xff" + `","KIND":"secret"}`,
		strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100),
	} {
		f.Add([]byte(s))
	}
}

// FuzzCompose has objects recorded as Secrets, and as pods, whatever they are. The file must be a recording. Nothing of
// a Secret may be left in it, and a pod must have the same value.
func FuzzCompose(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) {
			return
		}
		for _, hook := range []func(map[string]any){nil, func(o map[string]any) { delete(o, "kind") }} {
			d := composed(t, &Recorder{options: Options{Redact: hook}}, around(object, "secrets"), answerTo(`,"more":`+string(object)))
			for _, raw := range [][]byte{d.Request.Object.Raw, d.Request.OldObject.Raw} {
				var left map[string]any
				if json.Unmarshal(raw, &left) == nil {
					for name, value := range left {
						if _, stays := ofSecret[name]; !stays {
							checkPlaceholders(t, value)
						}
					}
				}
			}
		}
		patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/x","value":` + string(object) + `}]`))
		r := &Recorder{options: Options{SecretData: true}}
		d := composed(t, r, around(object, "pods"), answerTo(`,"patch":"`+patch+`"`))
		var was, is any
		if decode(object, &was) != nil || was == nil {
			return
		}
		if err := decode(d.Request.Object.Raw, &is); err != nil || !reflect.DeepEqual(was, is) {
			t.Fatalf("%q became %q: %v", object, d.Request.Object.Raw, err)
		}
	})
}

func composed(t *testing.T, r *Recorder, question, answer []byte) *document {
	t.Helper()
	c := &call{received: time.Now()}
	c.question.text, c.answer.text = bytes.Clone(question), answer
	f, err := r.compose(c)
	if err != nil {
		t.Fatalf("%q: %v", question, err)
	}
	if !bytes.Equal(c.question.text, question) || !ours.MatchString(fileName(f.received, f.about)) {
		t.Fatalf("%q became %q", question, f.text)
	}
	d, err := parse(f.text)
	if err != nil || d.Request == nil || d.Response == nil {
		t.Fatalf("%q became %q: %v", question, f.text, err)
	}
	return d
}

func checkPlaceholders(t *testing.T, value any) {
	t.Helper()
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			checkPlaceholders(t, v)
		}
	case []any:
		for _, v := range value {
			checkPlaceholders(t, v)
		}
	case string:
		if value != Placeholder && value != inBase64 {
			t.Fatalf("%q is left", value)
		}
	case float64:
		if value != 0 {
			t.Fatalf("%v is left", value)
		}
	}
}

// FuzzScrubbed hides a value in a text, in every spelling. Nothing of it may be left.
func FuzzScrubbed(f *testing.F) {
	f.Add("m4rk3r-hunter2", "a%2", "x=")
	f.Add("a b/c+d&e%f", "Basic ", "")
	f.Add("m4rk3r-hunter2", "x \n\n\n\n\n\n\n\n\na", "\n%")
	f.Add("\xff\x00\n\r ,1", "1 ", "AA==")
	hexPlaceholder := hex.EncodeToString([]byte(Placeholder))
	f.Fuzz(func(t *testing.T, value, before, after string) {
		if len(value) < leastValue || strings.Contains(Placeholder, value) || strings.Contains(inBase64, value) || strings.Contains(hexPlaceholder, value) {
			return
		}
		s := newScrubber([]string{value})
		for name, spelt := range map[string]string{
			"as it is": value, "base64": base64.StdEncoding.EncodeToString([]byte(value)), "base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(value)),
			"base64 of more":   base64.StdEncoding.EncodeToString([]byte(before + value + after)),
			"base64 of base64": base64.StdEncoding.EncodeToString([]byte(before + "&" + base64.RawStdEncoding.EncodeToString([]byte(value)))),
			"query":            "?" + url.QueryEscape(value), "path": "/" + url.PathEscape(value), "hexadecimal": hex.EncodeToString([]byte(value)),
			"bytes": fmt.Sprint([]byte(value)), "bytes in JSON": strings.ReplaceAll(fmt.Sprint([]byte(value)), " ", ","),
		} {
			if got := s.text(before + "&" + spelt + "&" + after); strings.Contains(got, spelt) {
				t.Errorf("%s: %q, in %q, is left in %q", name, value, spelt, got)
			}
		}
	})
}

// MaxWaiting is how many calls may wait, and MaxWaitingBytes is how many bytes of them.
const (
	MaxWaiting      = maxWaiting
	MaxWaitingBytes = int64(maxWaitingBytes)
)

// SetBudget lowers the bytes that may wait.
func (r *Recorder) SetBudget(most int64) { r.budget.Store(most) }

// Budget is how many more bytes may wait.
func (r *Recorder) Budget() int64 { return r.budget.Load() }

// Compose returns the text of the recording of a call, and the result of reading it.
func Compose(o Options, question, answer string) (text string, got Recorded, err error) {
	c := &call{path: "/mutate/volumes", received: time.Now()}
	c.question.text, c.answer.text = []byte(question), []byte(answer)
	f, err := (&Recorder{options: o}).compose(c)
	if err != nil {
		return "", got, err
	}
	d, err := parse(f.text)
	if err != nil {
		return "", got, err
	}
	return string(f.text), Recorded{Review: &d.AdmissionReview, Circumstances: d.Own}, nil
}

// StoreAt stores recordings of calls that came at one moment.
func StoreAt(dir string, at time.Time, about string, texts ...string) error {
	f, err := openFolder(dir, len(texts), 1<<20)
	if err != nil {
		return err
	}
	defer f.close()
	for _, text := range texts {
		if err := f.put(&file{received: at, about: about, text: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}
