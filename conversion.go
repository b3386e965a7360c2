package eirinix

// This file declares Conversion, which converts the objects of a CustomResourceDefinition between its versions.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// A Conversion converts the objects of one CustomResourceDefinition between the versions that it serves. Hub is a
// pointer to the Go type of one version, such as *v1.CronJob, or *unstructured.Unstructured. All other versions are
// Spokes, which convert to the Hub and back.
//
// AddExtension takes it by value. The Manager then serves the conversions, and keeps spec.conversion of the definition
// up to date. It neither creates nor deletes the definition, and waits for one that does not exist yet. No other field
// of the definition is changed.
//
// A conversion may change the labels and annotations of an object, and everything outside of its metadata. Any other
// change of the metadata fails here, as the API server would refuse it. Fields that the Go types do not know are kept.
type Conversion[Hub runtime.Object] struct {
	// CRD is the name of the CustomResourceDefinition, its plural and its group: "cronjobs.batch.example.com".
	CRD string

	// Version is the version of Hub, such as "v1".
	Version string

	// Spokes are all other versions that the definition serves or stores. NewSpoke and ConvertibleSpoke make them.
	Spokes []Spoke[Hub]

	// Lossy gives up what a version cannot hold. By default it survives in annotations of the object until that is
	// converted back: one for each lost place, under conversion.eirinix.cloudfoundry.org/, signed with a key that the
	// Secret <fingerprint>-conversions holds. All annotations of an object have 256 KiB. What does not fit is lost,
	// largest first, and conversion.eirinix.cloudfoundry.org/incomplete names it.
	Lossy bool
}

// A Spoke is a version other than the Hub, and its conversions. NewSpoke and ConvertibleSpoke make it.
type Spoke[Hub runtime.Object] struct {
	version string
	object  reflect.Type // nil for unstructured objects
	toHub   func(context.Context, runtime.Object) (runtime.Object, error)
	fromHub func(context.Context, runtime.Object) (runtime.Object, error)
	err     error
}

// NewSpoke returns a version whose objects the functions convert to the Hub and from it. S is a pointer to the Go type
// of the version, or *unstructured.Unstructured. The functions run concurrently. The object that they receive is their
// own, and they may return parts of it. They need not set apiVersion and kind.
//
// An error or a panic fails the request, with the name of the object. A context that ends is the end of the API
// server's patience. One object that cannot be converted makes lists and watches of its kind fail. Prefer a lossy result
// to an error.
func NewSpoke[Hub, S runtime.Object](version string, to func(context.Context, S) (Hub, error), from func(context.Context, Hub) (S, error)) Spoke[Hub] {
	s := Spoke[Hub]{version: version}
	if to == nil || from == nil {
		s.err = errors.New("lacks a function; NewSpoke needs one to the Hub and one from it")
		return s
	}
	s.object, s.err = objectType[S]()
	s.toHub = func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
		return checked(to(ctx, obj.(S)))
	}
	s.fromHub = func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
		return checked(from(ctx, obj.(Hub)))
	}
	return s
}

// ConvertibleSpoke returns a version whose type converts itself, as controller-runtime asks of spokes. S and Hub are
// pointers to the Go types.
func ConvertibleSpoke[Hub interface {
	runtime.Object
	conversion.Hub
}, S interface {
	runtime.Object
	conversion.Convertible
}](version string) Spoke[Hub] {
	return NewSpoke(version,
		func(_ context.Context, from S) (Hub, error) {
			to := reflect.New(reflect.TypeFor[Hub]().Elem()).Interface().(Hub)
			return to, from.ConvertTo(to)
		},
		func(_ context.Context, from Hub) (S, error) {
			to := reflect.New(reflect.TypeFor[S]().Elem()).Interface().(S)
			return to, to.ConvertFrom(from)
		})
}

// objectType returns T, a pointer to a struct. It is nil for unstructured objects.
func objectType[T runtime.Object]() (reflect.Type, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to an API type, such as *corev1.Pod", t)
	}
	if t.Elem() == unstructuredType {
		return nil, nil
	}
	return t, nil
}

// checked returns the result of a conversion. A nil object without an error would be sent as null.
func checked[T runtime.Object](obj T, err error) (runtime.Object, error) {
	if err == nil && isNil(obj) {
		err = errors.New("the conversion returned nil without an error")
	}
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// converting is a Conversion of any Hub.
type converting interface {
	defineConversion() (*convert.Kind, string, error)
}

// defineConversion returns the versions of the kind, and the name of its definition.
func (c Conversion[Hub]) defineConversion() (*convert.Kind, string, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("eirinix: Conversion[%s] of %q "+format, append([]any{reflect.TypeFor[Hub](), c.CRD}, args...)...)
	}
	plural, group, _ := strings.Cut(c.CRD, ".")
	if plural == "" || len(validation.IsDNS1123Subdomain(group)) > 0 || len(validation.IsDNS1123Label(plural)) > 0 {
		return nil, "", bad("has no CustomResourceDefinition; set CRD to its name, <plural>.<group>, such as \"cronjobs.batch.example.com\"")
	}
	hub, err := objectType[Hub]()
	if err != nil {
		return nil, "", bad("has a Hub that cannot be converted: %w", err)
	}
	kind := &convert.Kind{Group: group, Forget: c.Lossy, Versions: []convert.Version{{Name: c.Version, Type: hub}}}
	if len(c.Spokes) == 0 {
		return nil, "", bad("has no Spokes; add one for each other version that the definition serves")
	}
	for _, s := range c.Spokes {
		if s.err == nil && s.toHub == nil {
			s.err = errors.New("has no conversions; make it with NewSpoke or ConvertibleSpoke")
		}
		if s.err != nil {
			return nil, "", bad("has a spoke, version %q, that %w", s.version, s.err)
		}
		kind.Versions = append(kind.Versions, convert.Version{Name: s.version, Type: s.object, ToHub: s.toHub, FromHub: s.fromHub})
	}
	for i, v := range kind.Versions {
		if problems := validation.IsDNS1035Label(v.Name); len(problems) > 0 {
			return nil, "", bad("has the version %q; give names such as \"v1beta1\" to the Hub and to each spoke", v.Name)
		}
		if slices.ContainsFunc(kind.Versions[:i], func(o convert.Version) bool { return o.Name == v.Name }) {
			return nil, "", bad("has the version %q twice; each version is the Hub or one spoke", v.Name)
		}
	}
	return kind, c.CRD, nil
}

// conversionOf is a Conversion that was added.
type conversionOf struct {
	crd  string
	kind *convert.Kind
}

func (m *ExtensionManager) addConversion(kind *convert.Kind, crd string, err error) error {
	if err != nil {
		return err
	}
	if slices.ContainsFunc(m.conversions, func(c conversionOf) bool { return c.crd == crd }) {
		return fmt.Errorf("eirinix: the Conversion of %q is already added; a definition has one Hub, so give all versions to one Conversion", crd)
	}
	if len(m.conversions) == 0 {
		if err := m.startEarly(); err != nil {
			return err
		}
	}
	m.conversions = append(m.conversions, conversionOf{crd, kind})
	return nil
}

// path returns the path of the conversion, without the prefix of a shared server.
func (c conversionOf) path() string { return admit.ConvertPrefix + c.crd }

// entry returns the registration of the conversion. Its steps are the versions.
func (c conversionOf) entry() webhookconf.Entry {
	e := webhookconf.Entry{Name: c.crd, Path: c.path(), Converts: c.crd}
	for _, v := range c.kind.Versions {
		e.Steps = append(e.Steps, webhookconf.VersionStep(v.Name, c.crd))
	}
	return e
}

// elsewhere returns the versions that another live version of the program converts, and this one does not.
func (c conversionOf) elsewhere(route rollout.Route) (names []string) {
	for _, key := range route.Steps {
		name := webhookconf.VersionOf(key, c.crd)
		if !slices.Contains(route.Gone, key) && !slices.ContainsFunc(c.kind.Versions, func(v convert.Version) bool { return v.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// crdsOf returns the names of the definitions.
func crdsOf(conversions []conversionOf) []string {
	return list.Of(conversions, func(c conversionOf) string { return c.crd })
}

// conversionObserver counts the conversions of a definition, and logs those that fail.
type conversionObserver struct {
	*admit.ConversionMetrics
	log logr.Logger
}

// Converted implements convert.Observer.
func (o conversionObserver) Converted(string, string) { o.ConversionMetrics.Converted() }

// Failed implements convert.Observer.
func (o conversionObserver) Failed(from, to string, err error) {
	o.ConversionMetrics.Failed()
	o.log.Error(err, "an object could not be converted", "from", from, "to", to)
}

// Panicked implements convert.Observer.
func (o conversionObserver) Panicked(from, to string, value any, stack []byte) {
	o.ConversionMetrics.Panicked()
	o.log.Info("a conversion panicked", "from", from, "to", to, "value", fmt.Sprint(value), "stack", string(stack))
}

// Ignored implements convert.Observer.
func (o conversionObserver) Ignored(from, to string, reason error) {
	o.ConversionMetrics.Ignored()
	o.log.Info("what an earlier conversion kept is ignored, in whole or in part", "from", from, "to", to, "reason", reason.Error())
}

// Incomplete implements convert.Observer.
func (o conversionObserver) Incomplete(from, to string, reason error) {
	o.ConversionMetrics.Incomplete()
	o.log.Error(reason, "an object has lost values; make it smaller, or its versions alike", "from", from, "to", to)
}

// conversionsName returns the name of the Secret that holds the keys of conversions.
func (o ManagerOptions) conversionsName() string { return o.OperatorFingerprint + "-conversions" }

// keepsLosses reports whether a conversion keeps what a version cannot hold.
func (s setup) keepsLosses() bool {
	return slices.ContainsFunc(s.conversions, func(c conversionOf) bool { return !c.kind.Forget })
}

// obtainKeys makes or reads the Secret with the keys of the conversions. A half that does not register only reads it. While
// it is missing there, conversions that lose nothing succeed, and others look for it again.
func (p *program) obtainKeys(ctx context.Context, makes bool) error {
	if !p.m.given().keepsLosses() {
		return nil
	}
	p.keys.Fetch = func(ctx context.Context) ([][]byte, error) { return p.fetchKeys(ctx, makes) }
	err := wait.Retry(ctx, p.log, "the keys of the conversions", func(ctx context.Context) error {
		keys, err := p.keys.Fetch(ctx)
		p.keys.Learn(keys...)
		return err
	})
	if !makes && apierrors.IsNotFound(err) {
		p.log.Info("the keys of the conversions are missing; objects of which a version cannot hold all fail until the registering half has made them",
			"secret", p.namespace+"/"+p.m.GetManagerOptions().conversionsName())
		return nil
	}
	return err
}

// fetchKeys reads the keys in the order of their names, of which the last one signs. It makes a Secret that is missing with
// the keys that this process knows, else with a new one. Of two processes that make it, the first wins.
func (p *program) fetchKeys(ctx context.Context, makes bool) (keys [][]byte, err error) {
	name, secrets := p.m.GetManagerOptions().conversionsName(), p.clients.CoreV1().Secrets(p.namespace)
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if makes && wait.Vanished(err) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, Data: map[string][]byte{}}
		known := p.keys.Known()
		if len(known) == 0 {
			known = append(known, []byte(rand.Text()+rand.Text())) // 260 bits
		}
		for i, key := range known {
			secret.Data[fmt.Sprintf("%s-%02d", time.Now().UTC().Format("20060102"), i+1)] = key
		}
		if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			secret, err = secrets.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s with the keys of the conversions: %w", p.namespace, name, err)
	}
	for _, entry := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(secret.Data[entry]) < convert.KeyLength {
			return nil, fmt.Errorf("the key %q in the Secret %s/%s has %d bytes; give it %d random ones or more, or remove it",
				entry, p.namespace, name, len(secret.Data[entry]), convert.KeyLength)
		}
		keys = append(keys, secret.Data[entry])
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("the Secret %s/%s holds no key; restore it from a backup, or delete it to have a new one made", p.namespace, name)
	}
	return keys, nil
}

// offlineKeys signs what conversions keep where there is no cluster. Everyone knows its key, so that goldens stay the same.
func offlineKeys() *convert.Keys {
	keys := &convert.Keys{}
	keys.Learn([]byte("the key of a program without a cluster"))
	return keys
}

// serveConversions serves the conversions. routes are the paths of other versions of the program.
func (m *ExtensionManager) serveConversions(handler *admit.Handler, conversions []conversionOf, keys *convert.Keys, routes map[string]rollout.Route) {
	served := map[string]admit.Conversion{}
	for _, c := range conversions {
		kind := *c.kind
		kind.Keys = keys
		kind.Elsewhere = c.elsewhere(routes[m.pathPrefix()+c.path()])
		kind.Observer = conversionObserver{
			ConversionMetrics: handler.Counts().Conversion(c.crd),
			log:               handler.Log.WithValues("customResourceDefinition", c.crd),
		}
		served[c.path()] = admit.Conversion{Name: c.crd, Answer: kind.Answer}
	}
	handler.Convert(served)
}
