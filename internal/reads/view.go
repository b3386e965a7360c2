package reads

// This file stores objects in trees that can be copied at no cost, so that a call sees one state of them.

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/third_party/forked/golang/btree"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// degree is the number of children of a tree's nodes. Each change copies the nodes on the way to it.
const degree = 32

// view holds the objects of a declaration. Its fields above mu do not change once a Set has been made.
type view struct {
	declaration Declaration
	set         *Set
	at          int // in Set.views
	sources     []*source
	requiring   []string // the steps for which an object is Required

	object, list reflect.Type // pointers
	items        int          // index of the field Items in a list; -1 for unstructured objects
	indexes      []string     // the names of the indexes, sorted

	mu        sync.Mutex // serializes changes
	all       contents
	missing   map[*source]bool    // whose lists have not been stored yet
	failed    map[[2]string]error // objects for which a function of the declaration fails, by namespace and name
	published atomic.Pointer[contents]
	absent    atomic.Bool // there is no object, and a step requires one
}

// contents is a state of a view.
type contents struct {
	objects *btree.BTree[*entry]
	indexed []*btree.BTree[indexed] // by index
	broken  error                   // a function of the declaration has failed
}

// entry is an object of a view. It does not change once it is stored.
type entry struct {
	namespace, name string
	text            []byte
	values          [][]string // by index
}

// incoming is an object that a view is to store. If a function of the declaration has failed for it, only its name is
// known.
type incoming struct {
	*entry
	failed error
}

// indexed is an object under one of its values in an index.
type indexed struct {
	value string
	*entry
}

func (e *entry) compare(other *entry) int {
	if e.namespace != other.namespace {
		return strings.Compare(e.namespace, other.namespace)
	}
	return strings.Compare(e.name, other.name)
}

func (e *entry) before(other *entry) bool { return e.compare(other) < 0 }

func (i indexed) before(other indexed) bool {
	by := strings.Compare(i.value, other.value)
	if by == 0 {
		by = i.entry.compare(other.entry)
	}
	return by < 0
}

// pivots are entries to look for.
var pivots = sync.Pool{New: func() any { return new(entry) }}

// pivot returns an entry to look for. The caller puts it back into pivots.
func pivot(namespace, name string) *entry {
	p, _ := pivots.Get().(*entry)
	p.namespace, p.name = namespace, name
	return p
}

func newView(scheme *runtime.Scheme, d Declaration) (*view, error) {
	v := &view{declaration: d, items: -1, object: reflect.TypeOf(d.Object), indexes: slices.Sorted(maps.Keys(d.Index)), missing: map[*source]bool{}, failed: map[[2]string]error{}}
	list, err := newList(scheme, d)
	if err != nil {
		return nil, err
	}
	v.list = reflect.TypeOf(list)
	field, ok := v.list.Elem().FieldByName("Items")
	if !ok || field.Type.Kind() != reflect.Slice || field.Type.Elem() != v.object.Elem() {
		return nil, fmt.Errorf("%s has no Items of type %s", v.list, v.object.Elem())
	}
	v.items, v.all = field.Index[0], v.empty()
	return v, nil
}

// newList returns an empty list of the declared objects.
func newList(scheme *runtime.Scheme, d Declaration) (client.ObjectList, error) {
	var list client.ObjectList = &metav1.PartialObjectMetadataList{}
	kind := d.Kind
	kind.Kind += "List"
	switch formOf(d.Object) {
	case untyped:
		list = &unstructured.UnstructuredList{}
	case typed:
		made, err := scheme.New(kind)
		if err != nil {
			return nil, err
		}
		list, ok := made.(client.ObjectList)
		if !ok {
			return nil, fmt.Errorf("%T is no list", made)
		}
		return list, nil
	}
	list.GetObjectKind().SetGroupVersionKind(kind)
	return list, nil
}

func (v *view) empty() contents {
	c := contents{objects: btree.New(degree, (*entry).before)}
	for range v.indexes {
		c.indexed = append(c.indexed, btree.New(degree, indexed.before))
	}
	return c
}

// kept returns an object as the view stores it. It changes the object.
func (v *view) kept(o client.Object) (in incoming) {
	in.entry = &entry{namespace: o.GetNamespace(), name: o.GetName()}
	defer func() {
		if in.failed != nil {
			in.failed = fmt.Errorf("%s %s/%s: %w", v.declaration.Kind.Kind, in.namespace, in.name, in.failed)
		}
	}()
	withoutManagedFields(o)
	d := &v.declaration
	if d.Transform != nil {
		lasting := maps.Clone(o.GetLabels())
		if in.failed = contain("Read.Transform", func() { d.Transform(o) }); in.failed != nil {
			return in
		}
		named(o, in.namespace, in.name, lasting)
	}
	for _, index := range v.indexes {
		var values []string
		in.failed = contain(fmt.Sprintf("Read.Index[%q]", index), func() { values = d.Index[index](o) })
		if in.failed != nil {
			return in
		}
		values = slices.Clone(values)
		slices.Sort(values)
		in.values = append(in.values, slices.Clip(slices.Compact(values)))
	}
	in.text, in.failed = encode(o)
	return in
}

// put stores an object, and returns by how much their number has grown. While a function of a declaration fails for it,
// the view serves nothing: it is not known what the function would have kept. The caller holds mu.
func (v *view) put(in incoming) (added int64) {
	e, key := in.entry, [2]string{in.namespace, in.name}
	if in.failed != nil {
		v.failed[key] = in.failed
		return 0
	}
	delete(v.failed, key)
	e.namespace, e.name = unique.Make(e.namespace).Value(), strings.Clone(e.name) // objects share the names of namespaces
	old, replaced := v.all.objects.ReplaceOrInsert(e)
	if replaced {
		v.unindex(old)
	} else {
		added = 1
	}
	for i, values := range e.values {
		for _, value := range values {
			v.all.indexed[i].ReplaceOrInsert(indexed{value, e})
		}
	}
	return added
}

// drop removes the object of that name, and returns by how much the number of objects has shrunk. The caller holds mu.
func (v *view) drop(namespace, name string) (removed int64) {
	delete(v.failed, [2]string{namespace, name})
	old, found := v.all.objects.Delete(&entry{namespace: namespace, name: name})
	if !found {
		return 0
	}
	v.unindex(old)
	return 1
}

func (v *view) unindex(e *entry) {
	for i, values := range e.values {
		for _, value := range values {
			v.all.indexed[i].Delete(indexed{value, e})
		}
	}
}

// publish makes the current state visible, if the lists of all sources have been stored. The caller holds mu.
func (v *view) publish() {
	if len(v.missing) > 0 {
		return
	}
	state := contents{objects: v.all.objects.Clone()}
	for _, state.broken = range v.failed {
		break
	}
	for _, tree := range v.all.indexed {
		state.indexed = append(state.indexed, tree.Clone())
	}
	v.published.Store(&state)
}

// change makes a change and publishes it.
func (v *view) change(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
	v.publish()
	if len(v.requiring) > 0 {
		v.notice()
	}
}

// notice logs that an object which steps require is missing, or there again. The caller holds mu.
func (v *view) notice() {
	absent := len(v.missing) == 0 && v.all.objects.Len() == 0 && len(v.failed) == 0
	v.set.metrics.missing(v, absent)
	if v.absent.Swap(absent) == absent {
		return
	}
	if absent {
		v.set.log.Info("an object is missing that steps require; they fail, or wait to be registered, until it is created", "objects", v.String(), "steps", v.requiring)
	} else {
		v.set.log.Info("the object that steps require is there again", "objects", v.String(), "steps", v.requiring)
	}
	wait.Signal(v.set.changed)
}

// absence returns the error of a step that requires an object which is not there.
func (v *view) absence() error {
	return fmt.Errorf("there is no %s, and the step requires one (Read.Required); create it", v)
}

// String names the objects for messages.
func (v *view) String() string {
	return describe(v.sources[0].origin, strings.Join(v.declaration.Namespaces, ", "))
}

// replace replaces the objects of a namespace, or all. Unchanged objects keep their memory.
func (v *view) replace(namespace string, all []incoming) {
	maps.DeleteFunc(v.failed, func(key [2]string, _ error) bool { return namespace == "" || key[0] == namespace })
	present := make(map[[2]string]bool, len(all))
	for _, in := range all {
		present[[2]string{in.namespace, in.name}] = in.failed == nil
	}
	var gone []*entry
	v.all.objects.AscendGreaterOrEqual(&entry{namespace: namespace}, func(e *entry) bool {
		if namespace != "" && e.namespace != namespace {
			return false
		}
		if !present[[2]string{e.namespace, e.name}] {
			gone = append(gone, e)
		}
		return true
	})
	for _, e := range gone {
		v.drop(e.namespace, e.name)
	}
	for _, in := range all {
		old, found := v.all.objects.Get(in.entry)
		if !found || string(old.text) != string(in.text) || !slices.EqualFunc(old.values, in.values, slices.Equal) {
			v.put(in)
		}
	}
}

// serves reports whether the view has objects of that type and kind.
func (v *view) serves(of any, element reflect.Type) bool {
	if reflect.TypeOf(of) != element {
		return false
	}
	if formOf(v.declaration.Object) == typed {
		return true
	}
	kind, want := of.(runtime.Object).GetObjectKind().GroupVersionKind(), v.declaration.Kind
	return kind.GroupVersion() == want.GroupVersion() && (kind.Kind == want.Kind || kind.Kind == want.Kind+"List")
}

// reaches reports whether the declaration can hold objects of a namespace. The empty namespace means any.
func (v *view) reaches(namespace string) bool {
	return namespace == "" || len(v.declaration.Namespaces) == 0 || slices.Contains(v.declaration.Namespaces, namespace)
}

// covers reports whether the declaration can hold an object of that name.
func (v *view) covers(key client.ObjectKey) bool {
	if !v.reaches(key.Namespace) {
		return false
	}
	name, selected := v.declaration.OnlyName()
	return !selected || name == key.Name
}

// holding returns the state of a view that holds these objects, and fails with err unless it is nil. It changes the
// objects.
func (v *view) holding(objects []client.Object, err error) *contents {
	filled := &view{declaration: v.declaration, indexes: v.indexes}
	filled.all = filled.empty()
	filled.all.broken = err
	for _, o := range objects {
		if in := filled.kept(o); in.failed != nil {
			filled.all.broken = in.failed
		} else {
			filled.put(in)
		}
	}
	return &filled.all
}
