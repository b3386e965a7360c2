package patch_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Everything that a custom resource's type may do with encoding/json.
type (
	Inline struct {
		FromInline string `json:"fromInline,omitempty"`
		Hidden     string `json:"hidden,omitempty"`
	}
	Behind struct{ FromPointer string }
	Twice  struct{ Ambiguous, Tagged, Deeper string }
	Again  struct {
		Ambiguous string
		Tagged    string `json:"Tagged"`
		Nested
	}
	Nested   struct{ Deeper, Deepest string }
	Left     struct{ Nested }
	Right    struct{ Nested }
	Embedded struct{ A, B string }
	Colour   int
	Shouting string
	Loop     struct {
		Name     string          `json:"name,omitempty"`
		Children []Loop          `json:"children,omitempty"`
		Next     *Loop           `json:"next,omitempty"`
		Named    map[string]Loop `json:"named,omitempty"`
	}
	ByPointer  struct{ text string }
	Everything struct {
		Inline    `json:",inline"`
		*Behind   `json:",inline"`
		Hidden    string  `json:"hidden,omitempty"`
		Bool      bool    `json:"bool"`
		Int       int8    `json:"int,omitempty"`
		Uint      uint64  `json:"uint,omitempty"`
		Float     float32 `json:"float,omitempty"`
		Double    float64 `json:"double"`
		Text      string  `json:"text,omitempty"`
		Quoted    *int64  `json:"quoted,string,omitempty"`
		QuotedToo string  `json:"quotedToo,string,omitempty"`
		Skipped   string  `json:"-"`
		Dash      string  `json:"-,omitempty"` //nolint:staticcheck // legal, and so must work
		Untagged  string
		Bytes     []byte                       `json:"bytes,omitempty"`
		NullBytes []byte                       `json:"nullBytes"`
		Array     [2]int                       `json:"array"`
		Number    json.Number                  `json:"number,omitempty"`
		Any       any                          `json:"any,omitempty"`
		Colours   map[Colour]string            `json:"colours,omitempty"`
		Numbers   map[int]Loop                 `json:"numbers,omitempty"`
		Map       map[string]*Loop             `json:"map,omitempty"`
		NullMap   map[string]string            `json:"nullMap"`
		Loop      Loop                         `json:"loop,omitzero"`
		Loops     []*Loop                      `json:"loops,omitempty"`
		Matrix    [][]int                      `json:"matrix,omitempty"`
		Extension runtime.RawExtension         `json:"extension,omitempty"`
		Port      intstr.IntOrString           `json:"port,omitempty"`
		Duration  metav1.Duration              `json:"duration,omitempty"`
		Time      metav1.Time                  `json:"time,omitzero"`
		Micro     *metav1.MicroTime            `json:"micro,omitempty"`
		Quantity  *resource.Quantity           `json:"quantity,omitempty"`
		Pointed   ByPointer                    `json:"pointed"`
		PointedIn map[string]ByPointer         `json:"pointedIn,omitempty"`
		Shouting  Shouting                     `json:"shouting,omitempty"`
		Deep      map[string]map[string][]Loop `json:"deep,omitempty"`
		Std       time.Time                    `json:"std,omitzero"`
	}
)

// Renamed reads two spellings and writes one.
type Renamed struct{ n int }

func (r Renamed) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `{"new":%d}`, r.n), nil }

func (r *Renamed) UnmarshalJSON(text []byte) error {
	var v struct{ Old, New int }
	err := json.Unmarshal(text, &v)
	r.n = v.Old + v.New
	return err
}

func (c Colour) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "colour-%d", int(c)), nil }
func (c *Colour) UnmarshalText(t []byte) error {
	_, err := fmt.Sscanf(string(t), "colour-%d", (*int)(c))
	return err
}

func (s Shouting) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(string(s))), nil }

func (s *Shouting) UnmarshalText(t []byte) error {
	*s = Shouting(strings.ToLower(string(t)))
	return nil
}
func (b *ByPointer) MarshalJSON() ([]byte, error) { return json.Marshal("<" + b.text + ">") }
func (b *ByPointer) UnmarshalJSON(text []byte) error {
	var s string
	err := json.Unmarshal(text, &s)
	b.text = strings.Trim(s, "<>")
	return err
}

func everything() *Everything {
	q, n := resource.MustParse("1500m"), int64(-7)
	return &Everything{
		Inline: Inline{FromInline: "i", Hidden: "h"}, Behind: &Behind{"b"}, Hidden: "visible", Bool: true, Int: -3, Uint: math.MaxUint64,
		Float: 1e-7, Double: 1e21, Text: "a<b>&\u2028\"\\\n\x01\x7f é", Quoted: &n, QuotedToo: `"<"`, Skipped: "s", Dash: "d", Untagged: "u",
		Bytes: []byte{0, 255, 1}, Array: [2]int{1, 2}, Number: "12e3", Any: map[string]any{"b": []any{1.5, nil, true, "x"}, "a": json.Number("7")},
		Colours: map[Colour]string{3: "c", 11: "k"}, Numbers: map[int]Loop{10: {}, 9: {Name: "n"}},
		Map: map[string]*Loop{"nil": nil, "b": {Name: "b"}}, Loop: Loop{Children: []Loop{{Next: &Loop{Name: "deep"}}}}, Loops: []*Loop{nil, {}},
		Matrix: [][]int{nil, {}, {1}}, Extension: runtime.RawExtension{Raw: []byte(`{ "a": 1, "z": "<" }`)}, Port: intstr.FromString("http"),
		Duration: metav1.Duration{Duration: time.Minute}, Time: metav1.Unix(1e9, 0), Micro: &metav1.MicroTime{Time: time.Unix(1, 5000)}, Quantity: &q,
		Pointed: ByPointer{"p"}, PointedIn: map[string]ByPointer{"k": {"in"}}, Shouting: "loud",
		Deep: map[string]map[string][]Loop{"x": {"y": {{Name: "z"}}}}, Std: time.Unix(5, 7).UTC(),
	}
}
