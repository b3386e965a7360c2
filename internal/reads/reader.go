package reads

// This file serves the objects to one run of a step, from the state that its call sees.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Turn is one run of a step, which may read. All runs of a call share the Snapshot.
type Turn struct {
	open   func() *Reader // nil if the step declares nothing
	once   sync.Once
	reader *Reader // nil until the step asks for it
}

var errNoReads = errors.New("eirinix: the step has no Settings.Reads, or its Call was not made by a Manager; declare the kind in Settings.Reads, and test the step with a Harness")

// From makes the step read from a Snapshot. shared returns the value that all runs of the call share.
func (t *Turn) From(ctx context.Context, step string, shared func(first func() any) any, snapshot func(context.Context) *Snapshot) {
	if noted := notes(ctx); noted != nil {
		noted(Note{Step: step})
	}
	t.open = func() *Reader {
		taken, _ := shared(func() any { return snapshot(ctx) }).(*Snapshot)
		return taken.Reader(step)
	}
}

// Reader returns the Reader of the run.
func (t *Turn) Reader() *Reader {
	t.once.Do(func() {
		if t.reader = (&Reader{err: errNoReads}); t.open != nil {
			t.reader = t.open()
		}
	})
	return t.reader
}

// Err returns the error with which the step has failed, although the step may have dropped it.
func (t *Turn) Err() error {
	if t.reader == nil {
		return nil
	}
	return t.reader.Err()
}

// Reader serves one step from a Snapshot. It is safe for concurrent use.
type Reader struct {
	snapshot *Snapshot // nil if all reads fail with err
	step     string
	uses     []use

	mu  sync.Mutex
	err error
}

var _ client.Reader = (*Reader)(nil)

// Reader returns the Reader of a step.
func (t *Snapshot) Reader(step string) *Reader {
	return &Reader{snapshot: t, step: step, uses: t.set.steps[step]}
}

// Err returns the first error of the Reader that is not about a missing object. A step that had one has failed,
// because it has decided without what it declares.
func (r *Reader) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *Reader) failed(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	return err
}

// state returns what the step sees of a view, and notes that.
func (r *Reader) state(ctx context.Context, u use) (*contents, error) {
	c, err := r.snapshot.state(ctx, r.step, u)
	if r.snapshot.noted != nil {
		n := Note{Step: r.step, view: u.view}
		if _, quotes := errors.AsType[*brokenError](err); quotes {
			n.Failure = fmt.Sprintf("Read.Transform or Read.Index of %s fails", u.declaration)
		} else if err != nil {
			n.Failure = err.Error()
		}
		r.snapshot.noted(n)
	}
	return c, err
}

// Get copies the object of that name into o.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	var covering *view
	for _, u := range r.uses {
		if !u.serves(o, u.object) || !u.covers(key) {
			continue
		}
		covering = u.view
		c, err := r.state(ctx, u)
		if err != nil {
			return r.failed(err)
		}
		wanted := pivot(c.namespace(key.Namespace), key.Name)
		e, found := c.objects.Get(wanted)
		if pivots.Put(wanted); found {
			r.note(u.view, e)
			return r.decode(u.view, e, o)
		}
	}
	if covering == nil {
		return r.failed(r.undeclared(o, key.Namespace, key.Name))
	}
	kind := covering.declaration.Kind
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
}

func (r *Reader) decode(v *view, e *entry, into any) error {
	if err := v.decodeInto(e.text, into); err != nil {
		return r.failed(fmt.Errorf("%s %s/%s cannot be decoded: %w", v.declaration.Kind.Kind, e.namespace, e.name, err))
	}
	return nil
}

// note notes an object that the step is served.
func (r *Reader) note(v *view, e *entry) {
	if r.snapshot.noted != nil {
		r.snapshot.noted(Note{view: v, entry: e})
	}
}

// hit is an entry that a List has found.
type hit struct {
	*entry
	of *view
}

func (h hit) compare(other hit) int { return h.entry.compare(other.entry) }

// scratch holds hits while their number is not known.
var scratch = sync.Pool{New: func() any { return new([]hit) }}

// List copies all declared objects of the list's kind into list, ordered by namespace and name. Of the options, it
// knows the namespace, selectors of labels, indexes as fields, and the limit.
func (r *Reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	q, err := newQuery(opts)
	if err != nil {
		return r.failed(err)
	}
	found, _ := scratch.Get().(*[]hit)
	defer func() {
		clear(*found)
		*found = (*found)[:0]
		scratch.Put(found)
	}()
	var searched *view
	for _, u := range r.uses {
		if !u.serves(list, u.list) || !u.reaches(q.namespace) {
			continue
		}
		searched = u.view
		c, err := r.state(ctx, u)
		if err != nil {
			return r.failed(err)
		}
		before := len(*found)
		if err := u.find(c, &q, found); err != nil {
			return r.failed(err)
		}
		if before > 0 { // an object of several declarations is served by the first
			slices.SortStableFunc(*found, hit.compare)
			*found = slices.CompactFunc(*found, func(a, b hit) bool { return a.compare(b) == 0 })
		}
	}
	if searched == nil {
		return r.failed(r.undeclared(list, q.namespace, ""))
	}
	return r.fill(reflect.ValueOf(list).Elem().Field(searched.items), *found, &q)
}

// fill decodes the hits into the items of a list.
func (r *Reader) fill(items reflect.Value, found []hit, q *query) error {
	items.SetZero()
	items.Grow(len(found)) // a new slice of reflect.MakeSlice takes memory of its own
	items.SetLen(len(found))
	used := 0
	for _, h := range found {
		if q.limit > 0 && used == q.limit {
			break
		}
		item := items.Index(used).Addr().Interface()
		if err := r.decode(h.of, h.entry, item); err != nil {
			return err
		}
		if q.labels != nil || len(q.others) != 0 {
			o, ok := item.(client.Object)
			if !ok || !q.matches(h.of, o) {
				items.Index(used).SetZero()
				continue
			}
		}
		r.note(h.of, h.entry)
		used++
	}
	items.SetLen(used)
	return nil
}

// query is what a List asks for.
type query struct {
	namespace string
	limit     int
	labels    labels.Selector

	index, value string // the first of the fields; index is empty for none
	others       []fields.Requirement
}

// newQuery reads the options. The common ones cost no memory.
func newQuery(opts []client.ListOption) (query, error) {
	var q query
	for _, o := range opts {
		switch o := o.(type) {
		case client.InNamespace:
			q.namespace = string(o)
		case client.MatchingFields:
			if len(o) != 1 || q.index != "" {
				return otherQuery(opts)
			}
			for q.index, q.value = range o {
			}
		case client.Limit:
			q.limit = int(o)
		default:
			return otherQuery(opts)
		}
	}
	return q, nil
}

func otherQuery(opts []client.ListOption) (query, error) {
	var o client.ListOptions
	o.ApplyOptions(opts)
	q := query{namespace: o.Namespace, limit: int(o.Limit), labels: o.LabelSelector}
	if o.Continue != "" {
		return q, errors.New("a step's Reader has no continue tokens; leave out client.Continue, it returns all objects at once")
	}
	if q.labels != nil && q.labels.Empty() {
		q.labels = nil
	}
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		return q, nil
	}
	requirements := o.FieldSelector.Requirements()
	if len(requirements) == 0 { // it is fields.Nothing
		q.labels = labels.Nothing()
	}
	for _, f := range requirements {
		if f.Operator == "!=" {
			return q, fmt.Errorf("a step's Reader cannot select by %s!=%s; list the objects and compare", f.Field, f.Value)
		}
		if q.index == "" {
			q.index, q.value = f.Field, f.Value
			continue
		}
		q.others = append(q.others, f)
	}
	return q, nil
}

// namespace returns the namespace in which to look for objects. As for other clients, it is none for objects that are in
// no namespace.
func (c *contents) namespace(asked string) string {
	if asked == "" {
		return ""
	}
	if first, found := c.objects.Min(); found && first.namespace == "" {
		return ""
	}
	return asked
}

// find adds the entries that a query asks for, in order.
func (v *view) find(c *contents, q *query, found *[]hit) error {
	for _, f := range q.others {
		if !slices.Contains(v.indexes, f.Field) {
			return v.noIndex(f.Field)
		}
	}
	namespace, value := c.namespace(q.namespace), q.value
	first := pivot(namespace, "")
	defer pivots.Put(first)
	add := func(e *entry) bool {
		if namespace != "" && e.namespace != namespace {
			return false
		}
		*found = append(*found, hit{e, v})
		return true
	}
	if q.index == "" {
		c.objects.AscendGreaterOrEqual(first, add)
		return nil
	}
	at, ok := slices.BinarySearch(v.indexes, q.index)
	if !ok {
		return v.noIndex(q.index)
	}
	c.indexed[at].AscendGreaterOrEqual(indexed{value, first}, func(i indexed) bool { return i.value == value && add(i.entry) })
	return nil
}

func (v *view) noIndex(name string) error {
	return fmt.Errorf("%s has no index %q; add it: Index: map[string]client.IndexerFunc{%q: func(o client.Object) []string {...}}", v.declaration, name, name)
}

// matches reports whether an object matches the parts of a query that no index answers.
func (q *query) matches(v *view, o client.Object) bool {
	selected := q.labels == nil || q.labels.Matches(labels.Set(o.GetLabels()))
	return selected && !slices.ContainsFunc(q.others, func(f fields.Requirement) bool {
		return !slices.Contains(v.declaration.Index[f.Field](o), f.Value)
	})
}

// undeclared returns the error for objects that the step does not declare. It names the declaration to add.
func (r *Reader) undeclared(o runtime.Object, namespace, name string) error {
	if r.snapshot == nil {
		return r.err
	}
	what := strings.TrimPrefix(fmt.Sprintf("%T", o), "*")
	add := fmt.Sprintf("eirinix.Read{Object: &%s{}", strings.TrimSuffix(what, "List"))
	if kind := o.GetObjectKind().GroupVersionKind(); kind.Kind != "" { // typed objects mostly name none
		what = fmt.Sprintf("%s (%s)", what, kind)
	}
	if namespace != "" {
		what += " in namespace " + namespace
		add += fmt.Sprintf(", Namespaces: []string{%q}", namespace)
	}
	if name != "" {
		what += " with name " + name
	}
	declared := make([]string, 0, len(r.uses))
	for _, u := range r.uses {
		declared = append(declared, u.declaration.String())
	}
	has := cmp.Or(strings.Join(declared, ", "), "nothing")
	return fmt.Errorf("the step %q reads %s, but it declares %s; add %s} to its Settings.Reads", r.step, what, has, add)
}
