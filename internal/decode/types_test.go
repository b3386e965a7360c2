package decode

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var crdType = reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()

// apiTypes are the types of the objects that webhooks receive.
var apiTypes = []reflect.Type{
	reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.ConfigMap](), reflect.TypeFor[corev1.Secret](),
	reflect.TypeFor[corev1.Service](), reflect.TypeFor[corev1.Event](),
	reflect.TypeFor[appsv1.Deployment](), crdType, reflect.TypeFor[policyv1.Eviction](), reflect.TypeFor[autoscalingv1.Scale](),
	reflect.TypeFor[admissionregistrationv1.MutatingWebhookConfiguration](), reflect.TypeFor[admissionv1.AdmissionReview](),
	reflect.TypeFor[coordinationv1.Lease](),
}

// wronglyTagged and sameTags have tags that linters refuse in source code.
var (
	wronglyTagged = reflect.StructOf([]reflect.StructField{
		{Name: "List", Type: reflect.TypeFor[[]int](), Tag: `json:",string"`},
		{Name: "Struct", Type: reflect.TypeFor[Deep](), Tag: `json:",string"`},
		{Name: "Any", Type: reflect.TypeFor[any](), Tag: `json:",string"`},
		{Name: "Time", Type: reflect.TypeFor[metav1.Time](), Tag: `json:",string"`},
		{Name: "Dash", Type: reflect.TypeFor[int](), Tag: `json:"-"`},
		{Name: "RealDash", Type: reflect.TypeFor[int](), Tag: `json:"-,"`},
		{Name: "Bad", Type: reflect.TypeFor[int](), Tag: `json:"a\"b"`},
		{Name: "Quote", Type: reflect.TypeFor[int](), Tag: `json:"a'b"`},
		{Name: "Broken", Type: reflect.TypeFor[int](), Tag: `json:broken`},
	})
	sameTags = reflect.StructOf([]reflect.StructField{
		{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"T"`},
		{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"T"`},
		{Name: "T", Type: reflect.TypeFor[int]()},
	})
)

// oddTypes are the types with special rules in encoding/json. The last ones are not read without its help.
var oddTypes = []reflect.Type{
	reflect.TypeFor[scalars](), reflect.TypeFor[pointers](), reflect.TypeFor[lists](),
	reflect.TypeFor[maps](), reflect.TypeFor[embedding](), reflect.TypeFor[naming](),
	reflect.TypeFor[methods](), reflect.TypeFor[promoted](), reflect.TypeFor[interfaces](),
	reflect.TypeFor[tree](), reflect.TypeFor[times](), reflect.TypeFor[twoTimes](),
	reflect.TypeFor[wide](), reflect.TypeFor[any](), reflect.TypeFor[map[string]any](),
	reflect.TypeFor[[]any](), reflect.TypeFor[*map[string]any](), reflect.TypeFor[map[string]string](),
	reflect.TypeFor[[]string](), reflect.TypeFor[string](), reflect.TypeFor[int](),
	reflect.TypeFor[float64](), reflect.TypeFor[bool](), reflect.TypeFor[[]byte](),
	reflect.TypeFor[*int](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[json.RawMessage](),
	reflect.TypeFor[struct{}](), reflect.TypeFor[*struct{ metav1.Time }](),
	reflect.TypeFor[hiding](), reflect.TypeFor[diamond](), reflect.TypeFor[oddlyNamed](), reflect.TypeFor[Loop](),
	wronglyTagged, sameTags,
	reflect.TypeFor[quoting](), reflect.TypeFor[unsettable](), reflect.TypeFor[taggedInner](),
	reflect.TypeFor[selfEmbedding](), reflect.TypeFor[chan int](), reflect.TypeFor[error](),
	reflect.TypeFor[[0]int](), reflect.TypeFor[struct{ metav1.Time }](), reflect.TypeFor[**string](),
}

type (
	text    string
	number  int16
	flag    bool
	letters []byte
	letter  byte

	scalars struct {
		Bool    bool
		Int     int
		Int8    int8
		Int16   int16
		Int32   int32
		Int64   int64
		Uint    uint
		Uint8   uint8
		Uint16  uint16
		Uint32  uint32
		Uint64  uint64
		Uintptr uintptr
		Float32 float32
		Float64 float64
		String  string
		Text    text   `json:"text,omitempty"`
		Number  number `json:"number,omitzero"`
		Flag    flag
		Literal json.Number
		Complex complex128
		Chan    chan int
		Func    func()
		hidden  string //nolint:unused // it must not be seen
	}
	pointers struct {
		Bool    *bool
		Int     *int
		Twice   **int32
		Thrice  ***string
		Struct  *scalars
		Map     *map[string]int
		List    *[]int
		Any     *any
		Bytes   *[]byte
		Literal *json.Number
		Empty   *struct{}
	}
	lists struct {
		Ints    []int
		Strings []string
		Texts   []text
		Named   namedStrings
		Bytes   []byte
		Letters letters
		Named8  []letter
		Bytes2  [][]byte
		Array   [3]int
		Array8  [3]byte
		Array0  [0]string
		Structs []scalars
		Refs    []*pointers
		Maps    []map[string]string
		Any     []any
		Nested  [][][]int
		Arrays  [][2]string
	}
	namedStrings []string
	namedMap     map[string]string
	maps         struct {
		Strings   map[string]string
		Named     namedMap
		Keyed     map[text]text
		Any       map[string]any
		Ints      map[string]int
		ByInt     map[int]string
		ByInt8    map[int8]string
		ByUint    map[uint]string
		ByBool    map[bool]string
		ByAddr    map[netip.Addr]int
		ByKey     map[textKey]int
		Structs   map[string]scalars
		Refs      map[string]*scalars
		Lists     map[string][]string
		Maps      map[string]map[string]string
		Arrays    map[string][2]int
		Times     map[string]metav1.Time
		Resources corev1.ResourceList
	}
	textKey string

	base struct {
		ID    string `json:"id"`
		Extra string
		Stamp metav1.Time
		Tags  map[string]string
		Byte  []byte
	}
	Exported struct {
		Name  string `json:"name"`
		Inner int
		Deep
	}
	Deep      struct{ Deepest int }
	Word      string
	embedding struct {
		base      // unexported: its exported fields count
		*Exported // allocated as soon as one of its members comes
		Word      // no struct: a field of its name
		*Deep     `json:"deep"`
		Inline    Deep `json:",inline"` // to encoding/json, "inline" is nothing
	}
	hidA   struct{ X, Y, Z int }
	hidB   struct{ X, Y int }
	hidC   struct{ Z int }
	hiding struct {
		hidA
		hidB      // X and Y hide each other...
		X    int  // ...but here is another X
		HidC hidC `json:"Z"`
		Tag  int  `json:"Y"`
		W    int  `json:"V"`
		V    int  // hidden by its tagged neighbour
	}
	left    struct{ Common }
	right   struct{ Common }
	Common  struct{ Shared int }
	twice   struct{ left }
	diamond struct {
		left
		right
		twice
		Both
		*Also
	}
	Both    struct{ Also }
	Also    struct{ AlsoShared int }
	quoting struct {
		Int    int     `json:",string"`
		Float  float64 `json:"float,string"`
		Bool   bool    `json:",string,omitempty"`
		String string  `json:",omitempty,string"`
		Ptr    *uint8  `json:",string"`
		Text   text    `json:",string"`
	}
	naming struct {
		Lower   int `json:"lower"`
		Upper   int `json:"UPPER"`
		Same    int
		SAME    int
		Dash    int `json:"-"`
		Empty   int `json:",omitempty"`
		Umlaut  int `json:"größe"`
		Ünicode int
		NoTag   int `yaml:"other"`
	}
	oddlyNamed struct {
		Odd      int `json:"a b$%"`
		Replaced int `json:"a\ufffd"`
		Tab      int `json:"a	b"`
		Plain    int
	}
	methods struct {
		Value    valueMethod
		Pointer  pointerMethod
		Ref      *pointerMethod
		RefRef   **pointerMethod
		List     []pointerMethod
		Map      map[string]pointerMethod
		Failing  failing
		Text     textMethod
		TextRef  *textMethod
		TextMap  mapText
		Addr     netip.Addr
		Time     time.Time
		Unnamed  struct{ metav1.Time }
		UnnamedP *struct{ metav1.Time }
		Raw      json.RawMessage
		RawRef   *json.RawMessage
		Bytes    []methodByte
	}
	promoted struct {
		pointerMethod
		Other int
	}
	interfaces struct {
		Any    any
		Named  Anything
		Error  error
		Object runtime.Object
		Method json.Unmarshaler
		Refs   []*any
	}
	Anything interface{}
	tree     struct {
		Name     string
		Children []tree
		Left     *tree
		ByName   map[string]tree
		ByRef    map[string]*tree
	}
	unsettable struct {
		*base
		inner `json:"inner"`
		Plain int
	}
	inner       struct{ Field int }
	taggedInner struct {
		inner `json:"inner"`
		Plain int
	}
	selfEmbedding struct {
		*selfEmbedding2
		A int
	}
	Loop struct {
		*Loop
		A int
	}
	selfEmbedding2 struct {
		B int
	}
	times struct {
		Time   metav1.Time
		Ref    *metav1.Time
		Micro  metav1.MicroTime
		Length metav1.Duration
		List   []metav1.Time
		metav1.Condition
	}
	twoTimes struct { // whose methods hide each other
		metav1.Time
		metav1.MicroTime
	}
)

// wide has more fields than fit into one word, and a name at either end of it.
type wide struct {
	F00, F01, F02, F03, F04, F05, F06, F07, F08, F09, F10, F11, F12, F13, F14, F15, F16, F17, F18, F19 int
	G00, G01, G02, G03, G04, G05, G06, G07, G08, G09, G10, G11, G12, G13, G14, G15, G16, G17, G18, G19 int
	H00, H01, H02, H03, H04, H05, H06, H07, H08, H09, H10, H11, H12, H13, H14, H15, H16, H17, H18, H19 int
	I00, I01, I02, I03, I04, I05, I06, I07, I08, I09, I10, I11, I12, I13, I14, I15, I16, I17, I18, I19 int
}

type (
	valueMethod   map[string]string
	pointerMethod struct{ Got string }
	failing       struct{ Before int }
	textMethod    struct{ Got string }
	mapText       map[string]string
	methodByte    byte
)

func (m valueMethod) UnmarshalJSON(raw []byte) error {
	if m != nil {
		m["got"] = string(raw)
	}
	return nil
}

func (m *pointerMethod) UnmarshalJSON(raw []byte) error {
	m.Got += string(raw)
	return nil
}

func (m *failing) UnmarshalJSON(raw []byte) error {
	m.Before++
	if string(raw) == "1" {
		return nil
	}
	return errors.New("failing fails on " + string(raw))
}

func (m *textMethod) UnmarshalText(text []byte) error {
	if m.Got = strings.ToUpper(string(text)); m.Got == "X" {
		return errors.New("no X")
	}
	return nil
}

func (m *mapText) UnmarshalText(text []byte) error {
	*m = mapText{"text": string(text)}
	return nil
}

func (k *textKey) UnmarshalText(text []byte) error {
	*k = textKey("key " + string(text))
	return nil
}

func (b *methodByte) UnmarshalJSON(raw []byte) error {
	*b = methodByte(len(raw))
	return nil
}

// names are those of all fields that a type may read, and of some that it should not.
func names(t reflect.Type) []string {
	found := []string{"unknown"}
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(t reflect.Type) {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			for _, name := range []string{name, f.Name, strings.ToLower(f.Name)} {
				if name != "" && name != "-" {
					found = append(found, name)
				}
			}
			if f.Anonymous {
				visit(f.Type)
			}
		}
	}
	visit(t)
	return found
}
