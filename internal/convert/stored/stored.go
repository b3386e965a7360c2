// Package stored diagnoses the versions in which the objects of a CustomResourceDefinition are served and stored, and
// finds the objects that have lost values in conversions.
package stored

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Check implements diagnose.Config.Stored.
func Check(ctx context.Context, d diagnose.Definition, converts []string, objects rest.Interface) ([]diagnosis.Finding, error) {
	all := versions(d, converts)
	if objects == nil {
		return all, nil
	}
	names, more, err := incomplete(ctx, d, objects)
	if len(names) > 0 {
		atLeast := ""
		if more {
			atLeast = "at least "
		}
		all = append(all, diagnosis.Finding{
			Code: diagnosis.Incomplete, Severity: diagnosis.Warning, Object: subject(d),
			Message: fmt.Sprintf("%s%d objects of %s have lost values that their annotations could not hold, such as %s",
				atLeast, len(names), subject(d), strings.Join(names[:min(len(names), 3)], ", ")),
			Remedy: "their annotation " + convert.Incomplete + " names the places in each version: write these again from a backup, in that version, and remove the annotation",
		})
	}
	return all, err
}

func subject(d diagnose.Definition) string { return webhookconf.CRD.Name + " " + d.Metadata.Name }

// versions compares the versions of the definition with those that are converted.
func versions(d diagnose.Definition, converts []string) (all []diagnosis.Finding) {
	var storage string
	var lacking, older []string
	needs := func(version string) {
		step := webhookconf.VersionStep(version, d.Metadata.Name).Name
		if !slices.Contains(converts, step) && !slices.Contains(lacking, version) {
			lacking = append(lacking, version)
		}
	}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			storage = v.Name
		}
		if v.Served || v.Storage {
			needs(v.Name)
		}
	}
	for _, v := range d.Status.StoredVersions {
		needs(v)
		if v != storage {
			older = append(older, v)
		}
	}
	if len(lacking) > 0 {
		all = append(all, diagnosis.Finding{
			Code: diagnosis.NotConverted, Severity: diagnosis.Problem, Object: subject(d),
			Message: fmt.Sprintf("%s serves or stores %s, which the Conversion lacks, so reads and writes that need it fail", subject(d), strings.Join(lacking, ", ")),
			Remedy:  "add a spoke for each to conversion.Of.Spokes; or serve them no longer, store all of their objects in another version, and only then remove them from status.storedVersions",
		})
	}
	all = append(all, still(d, storage, older)...)
	return all
}

// still reports that objects may be stored in other versions than the storage version. From Kubernetes 1.37 on,
// kube-controller-manager removes those from status.storedVersions when a migration ends, unless the definition was changed
// meanwhile. It does so after one that has failed, too. Its condition is the only trace of that.
func still(d diagnose.Definition, storage string, older []string) []diagnosis.Finding {
	var versions, others []string
	for _, v := range d.Spec.Versions {
		versions = append(versions, strconv.Quote(v.Name))
		if !v.Storage {
			others = append(others, v.Name)
		}
	}
	migrate := "go run code.cloudfoundry.org/eirinix/examples/migrate@latest -resource " + d.Metadata.Name
	f := diagnosis.Finding{
		Code: diagnosis.StillStored, Severity: diagnosis.Note, Object: subject(d),
		Message: fmt.Sprintf("objects of %s may still be stored in %s, so they need this webhook even where %s alone is served", subject(d), strings.Join(older, ", "), storage),
		Remedy: fmt.Sprintf("before you remove a version or this webhook, migrate, which removes the others than %s from status.storedVersions: %s"+
			" (before Kubernetes 1.37, store all objects in %s yourself, and remove the others)", storage, migrate, storage),
	}
	last := meta.FindStatusCondition(d.Status.Conditions, "StorageMigrating")
	if last != nil {
		f.Evidence = last.Message
	}
	switch failed := last != nil && last.Reason == "MigrationFailed"; {
	case len(older) > 0 && last != nil && last.Status == metav1.ConditionTrue:
		f.Remedy = "wait: once the migration has succeeded, status.storedVersions lists " + storage + " alone; to follow it, " + migrate
	case len(older) == 0 && failed && len(others) > 0:
		f.Severity = diagnosis.Warning
		f.Message = fmt.Sprintf("objects of %s may still be stored in %s, although status.storedVersions does not list it: the last migration has failed, and Kubernetes removes versions from there all the same",
			subject(d), strings.Join(others, ", "))
		f.Remedy = fmt.Sprintf("keep the version and this webhook until a migration succeeds: %s; to list the version again, kubectl patch crd %s --subresource=status --type=merge -p '{\"status\":{\"storedVersions\":[%s]}}'",
			migrate, d.Metadata.Name, strings.Join(versions, ","))
	case len(older) == 0:
		return nil
	}
	return []diagnosis.Finding{f}
}

// incomplete names the objects that have lost values in conversions, among the first 10,000. more means that there are
// others.
func incomplete(ctx context.Context, d diagnose.Definition, objects rest.Interface) (names []string, more bool, err error) {
	plural, group, _ := strings.Cut(d.Metadata.Name, ".")
	version := ""
	for _, v := range d.Spec.Versions {
		if v.Served && (v.Storage || version == "") {
			version = v.Name
		}
	}
	page := metav1.PartialObjectMetadataList{}
	for n := 0; n == 0 || page.Continue != "" && n < 20; n++ {
		body, err := objects.Get().AbsPath("/apis", group, version, plural).
			Param("limit", "500").Param("continue", page.Continue).
			SetHeader("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").DoRaw(ctx)
		if page = (metav1.PartialObjectMetadataList{}); err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err != nil && !apierrors.IsNotFound(err) { // it is not served yet
			return names, false, err
		}
		for i := range page.Items {
			if o := &page.Items[i]; o.Annotations[convert.Incomplete] != "" {
				names = append(names, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
			}
		}
	}
	return names, page.Continue != "", nil
}
