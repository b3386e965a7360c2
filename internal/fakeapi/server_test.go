package fakeapi_test

// This file specifies a server's watches, reads and admission, in synctest's time.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/mapper"
)

// bubble runs f in synctest's time with an API that holds the objects. At its end, the bubble looks for goroutines that
// are left.
func bubble(t *testing.T, f func(ctx context.Context, g Gomega, a *fakeapi.API), objects ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, err := fakeapi.New(clientgoscheme.Scheme, mapper.New(clientgoscheme.Scheme, nil), objects...)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		f(context.Background(), g, a)
	})
}

func configMap(name string, pairs ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Data: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		c.Data[pairs[i]] = pairs[i+1]
	}
	c.Labels = map[string]string{"l": c.Data["l"]}
	return c
}

// get is a request for the ConfigMaps in the namespace a.
func get(s *fakeapi.Server, query string) *rest.Request {
	return kubernetes.NewForConfigOrDie(s.RestConfig()).CoreV1().RESTClient().Get().RequestURI("/api/v1/namespaces/a/configmaps?" + query)
}

// listed returns the version of a list, and how many objects it has.
func listed(ctx context.Context, s *fakeapi.Server, query string) (string, error) {
	all := &corev1.ConfigMapList{}
	err := get(s, query).Do(ctx).Into(all)
	return fmt.Sprintf("%s of %d", all.ResourceVersion, len(all.Items)), err
}

// byName is a text for each of several watches: its query, or its events.
type byName map[string]string

// watching watches the ConfigMaps in the namespace a. It returns a function for the events since its last call: type, name,
// resourceVersion and time of each, and then END.
func watching(ctx context.Context, s *fakeapi.Server, queries byName) (events func() byName) {
	var mu sync.Mutex
	got, start := byName{}, time.Now()
	for name, query := range queries {
		note := func(parts ...any) {
			mu.Lock()
			defer mu.Unlock()
			got[name] = strings.TrimPrefix(fmt.Sprint(got[name], ", ", fmt.Sprint(parts...), " ", time.Since(start)), ", ")
		}
		go func() {
			defer note("END")
			events, err := get(s, "watch=true&"+query).Watch(ctx)
			if err != nil {
				note(err)
				return
			}
			defer events.Stop()
			for e := range events.ResultChan() {
				if o, ok := e.Object.(*corev1.ConfigMap); ok {
					note(e.Type, " ", o.Name, o.Annotations[metav1.InitialEventsAnnotationKey], " ", o.ResourceVersion)
				} else {
					note(e.Type, " ", apierrors.FromObject(e.Object))
				}
			}
		}()
	}
	synctest.Wait()
	return func() (last byName) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		last, got = got, byName{}
		return last
	}
}

// begin watches, and expects the events with which each begins, by its query.
func begin(g Gomega, s *fakeapi.Server, events byName) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for query, first := range events {
		g.Expect(watching(ctx, s, byName{query: query})()[query]).To(Equal(first), query)
	}
}

const initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

func TestAWatchShowsTheStateAndEachChange(t *testing.T) {
	bubble(t, func(ctx context.Context, g Gomega, a *fakeapi.API) {
		s := a.NewServer(fakeapi.ServerOptions{Bookmarks: time.Minute})
		events := watching(ctx, s, byName{
			"all": initial + "&allowWatchBookmarks=true&timeoutSeconds=90", "unmarked": initial, "plain": "", "zero": "resourceVersion=0",
			"later": "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "two": "resourceVersion=2", "old": "resourceVersion=1",
		})
		state, changes, end := "ADDED x 1 0s, ADDED y 2 0s", "MODIFIED x 3 1s, DELETED y 4 1s", "END 1m30s"
		g.Expect(events()).To(Equal(byName{
			"all": state + ", BOOKMARK true 2 0s", "unmarked": state, "plain": state, "zero": state,
			"old": "ERROR too old resource version: 1 0s, END 0s", // a server knows no change before its start
		}))
		time.Sleep(time.Second)
		c := a.Client()
		g.Expect(c.Update(ctx, configMap("x", "k", "v"))).To(Succeed())
		g.Expect(c.Update(ctx, configMap("x", "k", "v"))).To(Succeed(), "changes nothing")
		g.Expect(c.Delete(ctx, configMap("y"))).To(Succeed())
		g.Expect(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "z"}})).To(Succeed())
		g.Expect(events()).To(Equal(byName{"all": changes, "unmarked": changes, "plain": changes, "zero": changes, "later": changes, "two": changes}))
		begin(g, s, byName{"resourceVersion=3": "DELETED y 4 0s", "": "ADDED x 3 0s"})
		time.Sleep(time.Minute)
		g.Expect(events()).To(Equal(byName{"all": "BOOKMARK  5 1m0s"}))
		time.Sleep(28 * time.Second)
		g.Expect(events()).To(Equal(byName{"all": "BOOKMARK  5 1m28s"}))
		time.Sleep(time.Second)
		g.Expect(events()).To(Equal(byName{"all": "END 1m30s"}), "timeoutSeconds")
		s.Close()
		g.Expect(events()).To(Equal(byName{"unmarked": end, "plain": end, "zero": end, "later": end, "two": end}), "no bookmarks unless they are allowed")
	}, configMap("x"), configMap("y"))
}

func TestServersLagButKeepTheOrder(t *testing.T) {
	bubble(t, func(ctx context.Context, g Gomega, a *fakeapi.API) {
		lags := []time.Duration{5 * time.Second, time.Second, 9 * time.Second, 0}
		late := a.NewServer(fakeapi.ServerOptions{Bookmarks: 2 * time.Second, Lag: func() (lag time.Duration) {
			lag, lags = lags[0], lags[1:]
			return lag
		}})
		now := a.NewServer(fakeapi.ServerOptions{})
		there, here := watching(ctx, late, byName{"": "allowWatchBookmarks=true"}), watching(ctx, now, byName{"": ""})
		g.Expect(a.Client().Create(ctx, configMap("x"))).To(Succeed())
		g.Expect(a.Client().Update(ctx, configMap("x", "k", "v"))).To(Succeed())
		g.Expect(here()).To(Equal(byName{"": "ADDED x 1 0s, MODIFIED x 2 0s"}))
		g.Expect(listed(ctx, late, "")).To(Equal("2 of 1"), "the latest state")
		g.Expect(listed(ctx, late, "resourceVersion=0")).To(Equal("0 of 0"))
		began := watching(ctx, late, byName{"resumed": "resourceVersion=1", "consistent": initial, "cached": "resourceVersion=0"})
		time.Sleep(3 * time.Second)
		g.Expect(began()).To(Equal(byName{"consistent": "ERROR Timeout: Too large resource version: 2, current: 0 3s, END 3s"}), "it did not become current in 3 s")
		asked := time.Now()
		g.Expect(listed(ctx, late, "resourceVersion=2")).To(Equal("2 of 1"))
		g.Expect(time.Since(asked)).To(Equal(2 * time.Second))
		g.Expect(there()).To(Equal(byName{"": "BOOKMARK  0 2s, BOOKMARK  0 4s, ADDED x 1 5s, MODIFIED x 2 5s"}))
		g.Expect(began()).To(Equal(byName{"resumed": "MODIFIED x 2 5s", "cached": "ADDED x 1 5s, MODIFIED x 2 5s"}))
		a.Remove(schema.GroupResource{Resource: "configmaps"}, "a", "x")
		g.Expect(here()).To(Equal(byName{"": "DELETED x 3 5s"}))
		g.Expect(a.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}})).To(Succeed())
		g.Expect(kubernetes.NewForConfigOrDie(late.RestConfig()).CoreV1().Secrets("a").List(ctx, metav1.ListOptions{ResourceVersion: "4"})).To(HaveField("Items", HaveLen(1)), "which waits for no other resource")
		late.Close()
		g.Expect(there()).To(Equal(byName{"": "END 5s"}))
		g.Expect(listed(ctx, late, "resourceVersion=0")).To(Equal("4 of 0"), "a new server begins with the latest state")
		g.Expect(here()).To(BeEmpty(), "the other server's watch goes on")
		now.Close()
	})
}

func TestAWatchIsRestrictedBySelectors(t *testing.T) {
	bubble(t, func(ctx context.Context, g Gomega, a *fakeapi.API) {
		s := a.NewServer(fakeapi.ServerOptions{})
		events := watching(ctx, s, byName{"label": "labelSelector=l%3Dyes", "name": "fieldSelector=metadata.name%3Dx", "field": "fieldSelector=metadata.name%3Dx,data.k%3Dv"})
		g.Expect(events()).To(Equal(byName{"label": "ADDED y 2 0s", "name": "ADDED x 1 0s"}))
		for _, c := range []*corev1.ConfigMap{configMap("x", "l", "yes"), configMap("x", "l", "yes", "k", "v"), configMap("y", "l", "no"), configMap("z")} {
			g.Expect(a.Put(c)).To(Succeed())
		}
		g.Expect(events()).To(Equal(byName{"label": "ADDED x 3 0s, MODIFIED x 4 0s, DELETED y 5 0s", "name": "MODIFIED x 3 0s, MODIFIED x 4 0s", "field": "ADDED x 4 0s"}))
		begin(g, s, byName{"fieldSelector=data.k%3Dv": "ADDED x 4 0s", "resourceVersion=3&labelSelector=l%3Dyes": "MODIFIED x 4 0s, DELETED y 5 0s"})
		s.Close()
	}, configMap("x"), configMap("y", "l", "yes"))
}

func TestAWatchResumesFromTheLatestChanges(t *testing.T) {
	bubble(t, func(_ context.Context, g Gomega, a *fakeapi.API) {
		s := a.NewServer(fakeapi.ServerOptions{Keeps: 2})
		for _, v := range []string{"1", "2", "3", "4"} {
			g.Expect(a.Put(configMap("x", "k", v))).To(Succeed())
			g.Expect(a.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: v}})).To(Succeed())
		}
		begin(g, s, byName{"resourceVersion=2": "ERROR too old resource version: 2 0s, END 0s", "resourceVersion=3": "MODIFIED x 5 0s, MODIFIED x 7 0s", "resourceVersion=7": ""})
		s.Close()
		begin(g, s, byName{"resourceVersion=7": "ERROR too old resource version: 7 0s, END 0s", "resourceVersion=8": ""})
	})
}

func TestARestoreTakesAllBack(t *testing.T) {
	bubble(t, func(ctx context.Context, g Gomega, a *fakeapi.API) {
		s, backup := a.NewServer(fakeapi.ServerOptions{Bookmarks: time.Minute}), a.Backup()
		events := watching(ctx, s, byName{"": ""})
		g.Expect(a.Client().Update(ctx, configMap("x", "k", "v"))).To(Succeed())
		g.Expect(a.Client().Create(ctx, configMap("y"))).To(Succeed())
		g.Expect(events()).To(Equal(byName{"": "ADDED x 1 0s, MODIFIED x 2 0s, ADDED y 3 0s"}))
		a.Restore(backup)
		g.Expect(events()).To(Equal(byName{"": "END 0s"}))
		g.Expect(a.Objects()).To(HaveExactElements(HaveField("Object", Not(HaveKey("data")))))
		future := watching(ctx, s, byName{"": "resourceVersion=3&allowWatchBookmarks=true"})
		for _, name := range []string{"p", "q", "r"} {
			g.Expect(a.Put(configMap(name))).To(Succeed())
			time.Sleep(70 * time.Second)
		}
		g.Expect(future()).To(Equal(byName{"": "BOOKMARK  3 2m0s, ADDED r 4 2m20s, BOOKMARK  4 3m0s"}), "nothing before the version that the client has")
		a.Restore(backup)
		g.Expect(a.Objects()).To(HaveLen(1), "a backup can be restored again")
		asked := time.Now()
		_, err := listed(ctx, s, "resourceVersion=3")
		g.Expect(apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)).To(BeTrue(), "%v", err)
		g.Expect(time.Since(asked)).To(BeNumerically(">=", 7*time.Second), "client-go is asked to try again after 1 s")
	}, configMap("x"))
}

func TestWritesAreConditionalAndAdmitted(t *testing.T) {
	bubble(t, func(ctx context.Context, g Gomega, a *fakeapi.API) {
		var calls []string
		var warnings strings.Builder
		disturbed := 0 // how many calls of Admit are disturbed by another client
		config := a.NewServer(fakeapi.ServerOptions{Admit: func(_ context.Context, r fakeapi.Request, old, object *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
			calls = append(calls, fmt.Sprint(r, " ", old != nil, object != nil))
			time.Sleep(time.Second)
			if disturbed--; disturbed >= 0 {
				g.Expect(a.Put(configMap("x", "l", "keep", "n", fmt.Sprint(disturbed)))).To(Succeed())
			}
			if object != nil {
				_ = unstructured.SetNestedField(object.Object, "yes", "data", "admitted")
				return object, []string{"admitted " + r.Verb}, nil
			}
			if old.GetLabels()["l"] == "keep" {
				return nil, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, r.Name, errors.New("it is kept"))
			}
			return old.DeepCopy(), []string{"admitted " + r.Verb}, nil // the object is ignored
		}}).RestConfig()
		config.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
		clients, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		c, dry := clients.CoreV1().ConfigMaps("a"), []string{metav1.DryRunAll}
		outcome := func(err error) string { // of a write: the reason of its failure, the calls of Admit, and the data that is stored
			data := list.Of(a.Objects(), func(o *unstructured.Unstructured) any { return o.Object["data"] })
			defer func() { calls = nil }()
			return fmt.Sprint(cmp.Or(string(apierrors.ReasonForError(err)), fmt.Sprint(err)), calls, data)
		}
		create := func(name string, dry ...string) *corev1.ConfigMap {
			made, err := c.Create(ctx, configMap(name), metav1.CreateOptions{DryRun: dry})
			g.Expect(err).NotTo(HaveOccurred())
			return made
		}
		patch := func(text string) string {
			_, err := c.Patch(ctx, "x", types.MergePatchType, []byte(text), metav1.PatchOptions{})
			return outcome(err)
		}
		removeIf := func(uid types.UID, version string) string {
			return outcome(c.Delete(ctx, "x", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}))
		}

		made := create("x")
		create("y", dry...)
		_, err = clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{}) // is not admitted
		g.Expect(outcome(err)).To(Equal("<nil>[create configmaps a/ false true create configmaps a/ (dry run) false true] [map[admitted:yes]]"))
		g.Expect(patch(`{"metadata":{"resourceVersion":"7"},"data":{"k":"v"}}`)).To(Equal("Conflict[] [map[admitted:yes]]"))
		g.Expect(removeIf("other", made.ResourceVersion)).To(Equal("Conflict[] [map[admitted:yes]]"))
		g.Expect(removeIf(made.UID, "7")).To(Equal("Conflict[] [map[admitted:yes]]"))
		g.Expect(outcome(c.Delete(ctx, "x", metav1.DeleteOptions{DryRun: dry}))).To(Equal("<nil>[delete configmaps a/x (dry run) true false] [map[admitted:yes]]"))
		g.Expect(removeIf(made.UID, made.ResourceVersion)).To(Equal("<nil>[delete configmaps a/x true false] []"))

		made = create("x")
		g.Expect(made.Data).To(Equal(map[string]string{"admitted": "yes"}))
		calls, disturbed = nil, 1
		_, err = c.Update(ctx, made, metav1.UpdateOptions{})
		g.Expect(outcome(err)).To(Equal("Conflict[update configmaps a/x true true] [map[l:keep n:0]]"))
		disturbed = 1
		g.Expect(patch(`{"data":{"k":"v"}}`)).To(Equal("<nil>[patch configmaps a/x true true patch configmaps a/x true true] [map[admitted:yes k:v l:keep n:0]]"))
		disturbed = 5
		g.Expect(patch(`{"data":{"k":"w"}}`)).To(And(HavePrefix("Conflict["), HaveSuffix("] [map[l:keep n:0]]")), "it does not try without end")
		g.Expect(outcome(c.Delete(ctx, "x", metav1.DeleteOptions{}))).To(Equal("Forbidden[delete configmaps a/x true false] [map[l:keep n:0]]"))
		g.Expect(strings.Split(warnings.String(), "\n")).To(HaveExactElements(
			"Warning: admitted create", "Warning: admitted create", "Warning: admitted delete", "Warning: admitted delete",
			"Warning: admitted create", "Warning: admitted update", "Warning: admitted patch", "Warning: admitted patch", "",
		))
	})
}

// slow is a connection on which each write takes a second.
type slow struct{ http.ResponseWriter }

func (s slow) Write(text []byte) (int, error) {
	time.Sleep(time.Second)
	return s.ResponseWriter.Write(text)
}

func TestASlowClientDelaysNoOther(t *testing.T) {
	bubble(t, func(_ context.Context, g Gomega, a *fakeapi.API) {
		s := a.NewServer(fakeapi.ServerOptions{})
		for _, query := range []string{"", "?watch=true&timeoutSeconds=1"} {
			go s.ServeHTTP(slow{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/configmaps"+query, nil))
		}
		synctest.Wait()
		g.Expect(a.Objects()).To(HaveLen(1)) // else it waits without end for the mutex of a goroutine that sleeps
		time.Sleep(5 * time.Second)
	}, configMap("x"))
}
