package admit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// labelText is the metadata.labels of an object as it stands in its JSON; nil where there are none.
type labelText []byte

// findLabels looks for the labels of an object, and tells whether it has metadata at all: options such as
// PodExecOptions have none. It stops where it has found them, so a second member of the same name goes
// unseen; the API server writes none. It is not ok when the text is not plain.
func findLabels(raw []byte) (text labelText, metadata, ok bool) {
	c := cursor{text: raw}
	if !c.member("metadata") {
		return nil, false, !c.odd
	}
	if !c.member("labels") {
		return nil, true, !c.odd
	}
	if c.null() {
		return nil, true, true
	}
	if c.peek() != '{' {
		return nil, true, false
	}
	text = c.value()
	return text, true, !c.odd
}

// member enters an object and goes to the value of a member, or behind the object when it has none of the name.
func (c *cursor) member(name string) bool {
	for more := c.enter('{'); more; more = c.more('{') {
		if string(c.name()) == name {
			return !c.odd
		}
		c.value()
	}
	return false
}

// value returns the value of a label. As for the decoder, the last one of a name counts.
func (text labelText) value(key string) (value []byte, has, ok bool) {
	if text == nil {
		return nil, false, true
	}
	c := cursor{text: text}
	for more := c.enter('{'); more; more = c.more('{') {
		found := string(c.name()) == key
		v := c.plain()
		if found {
			value, has = v, true
		}
	}
	return value, has, !c.odd
}

// decodeLabels is findLabels for text that is not plain. It is not ok when the labels cannot be read.
func decodeLabels(raw []byte) (labels map[string]string, metadata, ok bool) {
	var object struct {
		Metadata verbatim `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, false, false
	}
	if object.Metadata == nil {
		return nil, false, true
	}
	var meta struct {
		Labels map[string]string `json:"labels"`
	}
	err := decode.Into(object.Metadata, &meta) // which bounds the memory that labels take
	return meta.Labels, true, err == nil
}

// verbatim is a json.RawMessage without a copy.
type verbatim []byte

func (v *verbatim) UnmarshalJSON(text []byte) error {
	*v = text
	return nil
}

// requirement is one demand on a label.
type requirement struct {
	key      string
	operator metav1.LabelSelectorOperator
	values   []string
}

// requirementsOf gives the demands of a selector, all of which must be met.
func requirementsOf(selector *metav1.LabelSelector) ([]requirement, error) {
	if selector == nil {
		return nil, nil
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil, err
	}
	all := make([]requirement, 0, len(selector.MatchLabels)+len(selector.MatchExpressions))
	for key, value := range selector.MatchLabels {
		all = append(all, requirement{key: key, operator: metav1.LabelSelectorOpIn, values: []string{value}})
	}
	for _, e := range selector.MatchExpressions {
		all = append(all, requirement{key: e.Key, operator: e.Operator, values: slices.Clone(e.Values)})
	}
	return all, nil
}

// met tells whether a label meets the demand: its value, and whether there is one.
func met[T string | []byte](r *requirement, value T, has bool) bool {
	switch r.operator {
	case metav1.LabelSelectorOpIn:
		return has && lists(r.values, value)
	case metav1.LabelSelectorOpNotIn:
		return !has || !lists(r.values, value)
	case metav1.LabelSelectorOpExists:
		return has
	default: // DoesNotExist; there are no others
		return !has
	}
}

func lists[T string | []byte](values []string, value T) bool {
	for _, v := range values {
		if v == string(value) {
			return true
		}
	}
	return false
}
