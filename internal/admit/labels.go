package admit

// This file finds the labels of an object in its JSON, and evaluates label selectors on them.

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// labelText is the text of an object's metadata.labels in its JSON, or nil if there are none.
type labelText []byte

// findLabels finds the labels of an object. metadata reports whether the object has metadata at all, because options
// such as PodExecOptions have none. The search ends at the labels, so it misses a second member of the same name, but
// the API server writes none. ok is false if the text is not plain.
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

// member enters an object, goes to the value of the member with this name, and returns true. If there is no such
// member, it goes past the object and returns false.
func (c *cursor) member(name string) bool {
	for more := c.enter('{'); more; more = c.more('{') {
		if string(c.name()) == name {
			return !c.odd
		}
		c.value()
	}
	return false
}

// value returns the value of a label. If a name occurs twice, the last one wins, as in the decoder.
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

// decodeLabels is findLabels for text that is not plain. ok is false if the labels cannot be read.
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
	err := decode.Into(object.Metadata, &meta) // bounds the memory that labels take
	return meta.Labels, true, err == nil
}

// verbatim is a json.RawMessage without a copy.
type verbatim []byte

func (v *verbatim) UnmarshalJSON(text []byte) error {
	*v = text
	return nil
}

// requirement is one requirement of a label selector.
type requirement struct {
	key      string
	operator metav1.LabelSelectorOperator
	values   []string
}

// requirementsOf returns the requirements of a selector, all of which must be met.
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

// met reports whether a label meets a requirement. has reports whether the object has the label.
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
