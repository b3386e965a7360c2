// Migrate has Kubernetes store every object of a resource anew, unchanged and in the storage version, and follows that. If a
// migration of the resource is under way, it follows that one. It needs Kubernetes 1.37.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config" // which defines the flag -kubeconfig
)

// failure is a problem with its remedy.
type failure struct{ problem, remedy string }

func (f failure) Error() string { return f.problem + "\nremedy: " + f.remedy }

func main() {
	log.SetFlags(0)
	resource := flag.String("resource", "", "resource whose objects are stored anew, <plural>.<group>, such as widgets.example.org")
	timeout := flag.Duration("timeout", time.Hour, "how long to follow the migration, which does not end with this program")
	flag.Parse()
	if err := migrate(*timeout, schema.ParseGroupResource(*resource)); err != nil {
		log.Fatal(err)
	}
}

func migrate(timeout time.Duration, resource schema.GroupResource) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = apiextensionsv1.AddToScheme(scheme.Scheme)
	to, err := config.GetConfig()
	if err != nil {
		return failure{err.Error(), "give -kubeconfig the path of a kubeconfig"}
	}
	c, err := client.New(to, client.Options{})
	if err != nil {
		return err
	}
	migration, err := start(ctx, c, resource)
	if err != nil {
		return err
	}
	return follow(ctx, c, migration)
}

// start returns the migration that is under way, or a new one.
func start(ctx context.Context, c client.Client, resource schema.GroupResource) (*migrationv1.StorageVersionMigration, error) {
	var all migrationv1.StorageVersionMigrationList
	if err := c.List(ctx, &all); meta.IsNoMatchError(err) {
		problem := "the cluster does not serve storagemigration.k8s.io/v1: it is older than Kubernetes 1.37, or its feature gate StorageVersionMigrator is off"
		return nil, failure{problem, "write each object yourself: kubectl get " + resource.String() + " -A -o json | kubectl replace -f -"}
	} else if err != nil {
		return nil, err
	}
	kind, err := c.RESTMapper().KindFor(resource.WithVersion(""))
	if err != nil {
		return nil, failure{"the cluster does not serve " + resource.String() + ": " + err.Error(), "name it with its group; kubectl api-resources lists all"}
	}
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(kind)
	if err := c.List(ctx, objects, client.Limit(1)); err != nil {
		return nil, err
	}
	count, of := int64(len(objects.Items))+ptr.Deref(objects.RemainingItemCount, 0), metav1.GroupResource(resource)
	for _, found := range all.Items {
		if found.Spec.Resource == of && !meta.IsStatusConditionFalse(found.Status.Conditions, string(migrationv1.MigrationRunning)) {
			log.Printf("follows the migration %s of %d objects", found.Name, count)
			return &found, nil
		}
	}
	made := &migrationv1.StorageVersionMigration{Spec: migrationv1.StorageVersionMigrationSpec{Resource: of}}
	made.GenerateName = resource.String() + "-"
	if err := c.Create(ctx, made); err != nil {
		return nil, err
	}
	log.Printf("starts the migration %s of %d objects", made.Name, count)
	return made, nil
}

// follow prints the state every five seconds, until the migration has ended.
func follow(ctx context.Context, c client.Client, migration *migrationv1.StorageVersionMigration) error {
	began, state := time.Now(), "kube-controller-manager has not begun"
	for n := 1; ; n++ {
		elapsed := time.Since(began).Round(time.Second)
		if running := meta.FindStatusCondition(migration.Status.Conditions, string(migrationv1.MigrationRunning)); running != nil {
			if running.Status == metav1.ConditionFalse {
				return end(ctx, c, migration, elapsed)
			}
			state = running.Message
		}
		if n%5 == 0 {
			log.Printf("%s: %s", elapsed, state)
		}
		select {
		case <-ctx.Done():
			return failure{migration.Name + " goes on in the cluster; now: " + state, "the same command follows it again; if it does not begin, read the log of kube-controller-manager"}
		case <-time.After(time.Second):
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(migration), migration); err != nil && ctx.Err() == nil {
			return failure{err.Error(), "the same command follows the migration again, or starts another one"}
		}
	}
}

// end says which versions may leave the definition, or why the migration has failed.
func end(ctx context.Context, c client.Client, migration *migrationv1.StorageVersionMigration, elapsed time.Duration) error {
	var crd apiextensionsv1.CustomResourceDefinition
	of := migration.Spec.Resource
	err := c.Get(ctx, client.ObjectKey{Name: of.Resource + "." + of.Group}, &crd)
	var others []string
	for _, v := range crd.Spec.Versions {
		if !v.Storage {
			others = append(others, v.Name)
		}
	}
	names, listed := strings.Join(others, ", "), crd.Status.StoredVersions
	if failed := meta.FindStatusCondition(migration.Status.Conditions, string(migrationv1.MigrationFailed)); failed != nil {
		f := failure{migration.Name + " has failed: " + failed.Message, "remove the cause, and run this again; a webhook that judges with Validation.Rule admits what violated the rule before"}
		if len(listed) == 1 && names != "" {
			f.remedy += "\nuntil then, keep " + names + " in spec.versions: objects may be stored so, although Kubernetes has removed it from status.storedVersions"
		}
		return f
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	log.Printf("%s has succeeded after %s", migration.Name, elapsed)
	switch {
	case len(listed) > 1:
		return failure{"the definition was changed meanwhile, so status.storedVersions still lists " + strings.Join(listed, ", "), "run this again"}
	case names != "":
		log.Printf("status.storedVersions lists %s alone: %s may leave spec.versions once no client uses it", listed[0], names)
	}
	return nil
}
