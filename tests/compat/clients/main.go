// What Go clients do with a server: client-go informers and leader election, a controller of controller-runtime.
// usage: clients KUBECONFIG
// Each check prints `ok NAME`; the first that fails ends the program.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// A namespace of its own for every run.
var namespace = fmt.Sprintf("go-clients-%d", time.Now().UnixNano()%1_000_000)

type server struct {
	config *rest.Config
	proto  *kubernetes.Clientset
	json   *kubernetes.Clientset
}

// wire counts what goes over it: lists, streaming lists, answers in protobuf.
type wire struct {
	next      http.RoundTripper
	streams   atomic.Int64
	protobufs atomic.Int64
	lists     atomic.Int64
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		w.streams.Add(1)
	} else if request.Method == http.MethodGet && query.Get("watch") == "" && strings.HasSuffix(request.URL.Path, "s") {
		w.lists.Add(1)
	}
	response, err := w.next.RoundTrip(request)
	if err == nil && strings.HasPrefix(response.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
		w.protobufs.Add(1)
	}
	return response, err
}

func fail(name string, err error) {
	fmt.Printf("FAILED %s: %v\n", name, err)
	os.Exit(1)
}

func until(ctx context.Context, what string, ask func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for !ask() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"set": "one"}},
		Data:       map[string]string{"value": value},
	}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		fail("kubeconfig", err)
	}
	config.QPS, config.Burst = 500, 1000
	counted := &wire{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted.next = next
		return counted
	})
	proto := rest.CopyConfig(config)
	proto.ContentType = "application/vnd.kubernetes.protobuf"
	proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	s := server{config: config, proto: kubernetes.NewForConfigOrDie(proto), json: kubernetes.NewForConfigOrDie(config)}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if _, err := s.json.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		fail("namespace", err)
	}
	// What the server's controllers put into a new namespace is there before anything is counted.
	if err := until(ctx, "the CA in the namespace", func() bool {
		_, err := s.json.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil
	}); err != nil {
		fail("namespace", err)
	}
	checks := []struct {
		name string
		run  func(context.Context, server, *wire) error
	}{
		{"informer with protobuf", protobufInformer},
		{"informer of a custom kind", customInformer},
		{"list in pages", pages},
		{"streaming list", streamingList},
		{"bookmarks and resume", resume},
		{"a revision that is gone", gone},
		{"a watch that ends is taken up again", reconnect},
		{"server-side apply", apply},
		{"conflict and retry", conflicts},
		{"leader election", leaders},
		{"controller of controller-runtime", controller},
	}
	for _, check := range checks {
		if err := check.run(ctx, s, counted); err != nil {
			fail(check.name, err)
		}
		fmt.Println("ok", check.name)
	}
	_ = s.json.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	fmt.Printf("%d passed, 0 failed\n", len(checks))
}

// An informer over protobuf sees what was there, what comes, what changes and what goes.
func protobufInformer(ctx context.Context, s server, counted *wire) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	maps := s.json.CoreV1().ConfigMaps(namespace)
	for i := range 20 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("before-%d", i), "0"), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	var added, updated, deleted atomic.Int64
	factory := informers.NewSharedInformerFactoryWithOptions(s.proto, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "set=one" }))
	informer := factory.Core().V1().ConfigMaps()
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(any, any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	}); err != nil {
		return err
	}
	before := counted.protobufs.Load()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return errors.New("never synced")
	}
	if err := until(ctx, "20 additions", func() bool { return added.Load() == 20 }); err != nil {
		return err
	}
	if counted.protobufs.Load() == before {
		return errors.New("no answer in protobuf")
	}
	for i := range 5 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("later-%d", i), "0"), metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := maps.Update(ctx, configMap(fmt.Sprintf("before-%d", i), "1"), metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := maps.Delete(ctx, fmt.Sprintf("before-%d", 10+i), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	// An object that no longer fits the selector has gone.
	if _, err := maps.Patch(ctx, "before-19", types.MergePatchType, []byte(`{"metadata":{"labels":{"set":"two"}}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "all events", func() bool { return added.Load() == 25 && updated.Load() == 5 && deleted.Load() == 6 }); err != nil {
		return fmt.Errorf("%w: %d added, %d updated, %d deleted", err, added.Load(), updated.Load(), deleted.Load())
	}
	kept, err := informer.Lister().ConfigMaps(namespace).Get("before-3")
	if err != nil || kept.Data["value"] != "1" {
		return fmt.Errorf("the cache holds %v: %w", kept, err)
	}
	return nil
}

var subscriptions = schema.GroupVersionResource{Group: "apps.clusternet.io", Version: "v1alpha1", Resource: "subscriptions"}

func subscription(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Subscription",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"subscribers": []any{map[string]any{"clusterAffinity": map[string]any{"matchLabels": map[string]any{"none": "such"}}}},
			"feeds":       []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": namespace}},
		},
	}}
}

// A dynamic informer of a kind that a definition made.
func customInformer(ctx context.Context, s server, _ *wire) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	way := dynamic.NewForConfigOrDie(s.config)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(way, 0, namespace, nil)
	informer := factory.ForResource(subscriptions)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return errors.New("never synced")
	}
	own := way.Resource(subscriptions).Namespace(namespace)
	if _, err := own.Create(ctx, subscription("one"), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "the Subscription in the cache", func() bool { _, err := informer.Lister().ByNamespace(namespace).Get("one"); return err == nil }); err != nil {
		return err
	}
	if err := own.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, "the Subscription gone", func() bool {
		_, err := informer.Lister().ByNamespace(namespace).Get("one")
		return apierrors.IsNotFound(err)
	})
}

// A list in pages is the list of one moment.
func pages(ctx context.Context, s server, _ *wire) error {
	maps := s.proto.CoreV1().ConfigMaps(namespace)
	whole, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	first, err := maps.List(ctx, metav1.ListOptions{Limit: 7})
	if err != nil {
		return err
	}
	if len(first.Items) != 7 || first.Continue == "" || first.RemainingItemCount == nil || int(*first.RemainingItemCount) != len(whole.Items)-7 {
		return fmt.Errorf("first page: %d items, continue %q, remaining %v of %d", len(first.Items), first.Continue, first.RemainingItemCount, len(whole.Items))
	}
	if _, err := maps.Create(ctx, configMap("between-pages", "0"), metav1.CreateOptions{}); err != nil {
		return err
	}
	second, err := maps.List(ctx, metav1.ListOptions{Limit: 500, Continue: first.Continue})
	if err != nil {
		return err
	}
	if len(first.Items)+len(second.Items) != len(whole.Items) || second.ResourceVersion != first.ResourceVersion {
		return fmt.Errorf("pages hold %d of %d, at %s and %s", len(first.Items)+len(second.Items), len(whole.Items), first.ResourceVersion, second.ResourceVersion)
	}
	count := 0
	all := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) { return maps.List(ctx, options) }))
	all.PageSize = 5
	if err := all.EachListItem(ctx, metav1.ListOptions{}, func(runtime.Object) error { count++; return nil }); err != nil {
		return err
	}
	if count != len(whole.Items)+1 {
		return fmt.Errorf("the pager found %d of %d", count, len(whole.Items)+1)
	}
	return maps.Delete(ctx, "between-pages", metav1.DeleteOptions{})
}

// A watch that sends what is there, ends that part with a marked bookmark, then goes on; informers use it by themselves.
func streamingList(ctx context.Context, s server, counted *wire) error {
	maps := s.proto.CoreV1().ConfigMaps(namespace)
	whole, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	yes := true
	for _, from := range []string{"", "0", whole.ResourceVersion} {
		stream, err := maps.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: from})
		if err != nil {
			return fmt.Errorf("from %q: %w", from, err)
		}
		seen := 0
		for event := range stream.ResultChan() {
			if event.Type == watch.Bookmark {
				mark := event.Object.(*corev1.ConfigMap)
				if mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || mark.ResourceVersion == "" {
					return fmt.Errorf("from %q: a bookmark without a mark: %v", from, mark.ObjectMeta)
				}
				break
			}
			if event.Type != watch.Added {
				return fmt.Errorf("from %q: %s among the initial events: %v", from, event.Type, event.Object)
			}
			seen++
		}
		if seen != len(whole.Items) {
			return fmt.Errorf("from %q: %d of %d", from, seen, len(whole.Items))
		}
		if _, err := maps.Create(ctx, configMap("streamed", "0"), metav1.CreateOptions{}); err != nil {
			return err
		}
		event, open := <-stream.ResultChan()
		if !open || event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != "streamed" {
			return fmt.Errorf("from %q: after the list came %v", from, event)
		}
		if err := maps.Delete(ctx, "streamed", metav1.DeleteOptions{}); err != nil {
			return err
		}
		// A server may answer the next one from a cache: it has seen this first.
		for event.Type != watch.Deleted && open {
			event, open = <-stream.ResultChan()
		}
		stream.Stop()
	}
	// Without bookmarks it is no valid request.
	if _, err := maps.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a streaming list that names no match was not refused: %v", err)
	}
	if counted.streams.Load() == 0 {
		return errors.New("no informer used a streaming list")
	}
	return nil
}

// A watch from an older revision tells everything since, in order, once.
func resume(ctx context.Context, s server, _ *wire) error {
	maps := s.json.CoreV1().ConfigMaps(namespace)
	start, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range 10 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("resumed-%d", i), "0"), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	at := start.ResourceVersion
	for i := range 10 {
		// Each time from the last that was seen: the stream was cut in between.
		stream, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: at, AllowWatchBookmarks: true})
		if err != nil {
			return err
		}
		event, open := <-stream.ResultChan()
		stream.Stop()
		if !open {
			return errors.New("the stream ended")
		}
		found, is := event.Object.(*corev1.ConfigMap)
		if !is || event.Type != watch.Added || found.Name != fmt.Sprintf("resumed-%d", i) {
			return fmt.Errorf("event %d is %s %v", i, event.Type, event.Object)
		}
		at = found.ResourceVersion
	}
	for i := range 10 {
		if err := maps.Delete(ctx, fmt.Sprintf("resumed-%d", i), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	// A deletion carries the revision of the deletion.
	stream, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: at})
	if err != nil {
		return err
	}
	defer stream.Stop()
	event := <-stream.ResultChan()
	found, is := event.Object.(*corev1.ConfigMap)
	if !is || event.Type != watch.Deleted || found.ResourceVersion == at {
		return fmt.Errorf("expected a deletion, got %s %v", event.Type, event.Object)
	}
	return nil
}

// Revisions that are too old, or yet to come, are refused in the words that reflectors know.
func gone(ctx context.Context, s server, _ *wire) error {
	maps := s.json.CoreV1().ConfigMaps(namespace)
	stream, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
	switch {
	case err != nil:
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return fmt.Errorf("watch from revision 1: %w", err)
		}
	default:
		event := <-stream.ResultChan()
		stream.Stop()
		if event.Type == watch.Error {
			if told := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(told) && !apierrors.IsGone(told) {
				return fmt.Errorf("watch from revision 1: %w", told)
			}
		} else if event.Type != watch.Added {
			return fmt.Errorf("watch from revision 1 began with %s", event.Type)
		}
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	// Without the client's own retries, which the server asks for.
	future := s.json.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").MaxRetries(0)
	if err := future.Param("resourceVersion", "999999999999").Param("resourceVersionMatch", "NotOlderThan").Do(short).Error(); !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return fmt.Errorf("a list not older than a revision to come: %v", err)
	}
	if _, err := maps.List(ctx, metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		return fmt.Errorf("a continue token of nonsense: %v", err)
	}
	return nil
}

// A watch that the server ends is taken up where it ended, without a new list.
func reconnect(ctx context.Context, s server, counted *wire) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	maps := s.proto.CoreV1().ConfigMaps(namespace)
	second := int64(1)
	var watches atomic.Int64
	listWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return maps.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watches.Add(1)
			options.TimeoutSeconds = &second
			return maps.Watch(ctx, options)
		},
	}, s.proto)
	informer := cache.NewSharedIndexInformer(listWatch, &corev1.ConfigMap{}, 0, cache.Indexers{})
	var added, deleted atomic.Int64
	// Only what is made below counts: a server's controllers publish their CA in a new namespace when they come to it.
	ours := func(object any) int64 {
		if one, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil && strings.Contains(one, "/cut-") {
			return 1
		}
		return 0
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(object any) { added.Add(ours(object)) }, DeleteFunc: func(object any) { deleted.Add(ours(object)) }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("never synced")
	}
	lists := counted.lists.Load()
	for round := range 20 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("cut-%d", round), "0"), metav1.CreateOptions{}); err != nil {
			return err
		}
		time.Sleep(150 * time.Millisecond)
		if err := maps.Delete(ctx, fmt.Sprintf("cut-%d", round), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	if err := until(ctx, "every event once", func() bool { return added.Load() == 20 && deleted.Load() == 20 }); err != nil {
		return fmt.Errorf("%w: %d added, %d deleted", err, added.Load(), deleted.Load())
	}
	if watches.Load() < 4 || counted.lists.Load() != lists {
		return fmt.Errorf("%d watches, %d new lists", watches.Load(), counted.lists.Load()-lists)
	}
	return nil
}

// Fields have owners; another's are taken only by force.
func apply(ctx context.Context, s server, _ *wire) error {
	maps := s.proto.CoreV1().ConfigMaps(namespace)
	first := applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"a": "1", "b": "1"})
	if _, err := maps.Apply(ctx, first, metav1.ApplyOptions{FieldManager: "first"}); err != nil {
		return err
	}
	second := applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"b": "2"})
	if _, err := maps.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "second"}); !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("expected a conflict, got %v", err)
	}
	taken, err := maps.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "second", Force: true})
	if err != nil || taken.Data["b"] != "2" || len(taken.ManagedFields) != 2 {
		return fmt.Errorf("by force: %v, %w", taken, err)
	}
	extracted, err := applycorev1.ExtractConfigMap(taken, "first")
	if err != nil || len(extracted.Data) != 1 {
		return fmt.Errorf("the first owns %v: %w", extracted, err)
	}
	left, err := maps.Apply(ctx, applycorev1.ConfigMap("applied", namespace), metav1.ApplyOptions{FieldManager: "first"})
	if err != nil || len(left.Data) != 1 || left.Data["b"] != "2" {
		return fmt.Errorf("after the first let go: %v, %w", left, err)
	}
	return maps.Delete(ctx, "applied", metav1.DeleteOptions{})
}

// Of writers at once one wins each time; who retries loses nothing.
func conflicts(ctx context.Context, s server, _ *wire) error {
	maps := s.proto.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(ctx, configMap("counted", ""), metav1.CreateOptions{}); err != nil {
		return err
	}
	failed := make(chan error, 4)
	for writer := range 4 {
		go func() {
			for range 5 {
				err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) }, func() error {
					return retry.RetryOnConflict(retry.DefaultRetry, func() error {
						one, err := maps.Get(ctx, "counted", metav1.GetOptions{})
						if err != nil {
							return err
						}
						one.Data["value"] += fmt.Sprint(writer)
						_, err = maps.Update(ctx, one, metav1.UpdateOptions{})
						return err
					})
				})
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range 4 {
		if err := <-failed; err != nil {
			return err
		}
	}
	one, err := maps.Get(ctx, "counted", metav1.GetOptions{})
	if err != nil || len(one.Data["value"]) != 20 {
		return fmt.Errorf("%v: %w", one.Data, err)
	}
	wrong := types.UID("00000000-0000-0000-0000-000000000000")
	if err := maps.Delete(ctx, "counted", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		return fmt.Errorf("a deletion of another uid: %v", err)
	}
	return maps.Delete(ctx, "counted", metav1.DeleteOptions{})
}

// One leads; when it lets go another does.
func leaders(ctx context.Context, s server, _ *wire) error {
	var led [2]atomic.Int64
	start := func(ctx context.Context, which int) chan struct{} {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, "leader", s.proto.CoreV1(), s.proto.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: fmt.Sprint("candidate-", which)})
		if err != nil {
			fail("lock", err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond, ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { led[which].Add(1) }, OnStoppedLeading: func() {}},
			})
		}()
		return ended
	}
	one, endOne := context.WithCancel(ctx)
	defer endOne()
	endedOne := start(one, 0)
	if err := until(ctx, "the first leads", func() bool { return led[0].Load() == 1 }); err != nil {
		return err
	}
	two, endTwo := context.WithCancel(ctx)
	defer endTwo()
	endedTwo := start(two, 1)
	time.Sleep(1500 * time.Millisecond)
	if led[1].Load() != 0 {
		return errors.New("two lead at once")
	}
	endOne()
	<-endedOne
	if err := until(ctx, "the second leads", func() bool { return led[1].Load() == 1 }); err != nil {
		return err
	}
	endTwo()
	<-endedTwo
	return nil
}

// A manager with a cached client keeps a copy of every ConfigMap of one label.
func controller(ctx context.Context, s server, _ *wire) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	manager, err := ctrl.NewManager(s.config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "copier", LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	copier := &copier{manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).Named("copier").Complete(copier); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "original", Namespace: namespace, Labels: map[string]string{"copy": "yes"}}, StringData: map[string]string{"a": "1"}}
	plain, err := client.New(s.config, client.Options{})
	if err != nil {
		return err
	}
	if err := plain.Create(ctx, secret); err != nil {
		return err
	}
	copied := func(value string) func() bool {
		return func() bool {
			found := &corev1.ConfigMap{}
			err := plain.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "original-copy"}, found)
			return err == nil && found.Data["a"] == value && metav1.IsControlledBy(found, secret)
		}
	}
	if err := until(ctx, "a copy", copied("1")); err != nil {
		return err
	}
	// Drift is mended, changes follow.
	if err := plain.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "original-copy", Namespace: namespace}}, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"9"}}`))); err != nil {
		return err
	}
	if err := until(ctx, "the copy mended", copied("1")); err != nil {
		return err
	}
	if err := plain.Patch(ctx, secret, client.RawPatch(types.StrategicMergePatchType, []byte(`{"stringData":{"a":"2"}}`))); err != nil {
		return err
	}
	if err := until(ctx, "the change followed", copied("2")); err != nil {
		return err
	}
	// The finalizer holds it until the controller has done its part; the owner's deletion takes the copy.
	if err := plain.Delete(ctx, secret); err != nil {
		return err
	}
	if err := until(ctx, "both gone", func() bool {
		one := plain.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "original"}, &corev1.Secret{})
		other := plain.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "original-copy"}, &corev1.ConfigMap{})
		return apierrors.IsNotFound(one) && apierrors.IsNotFound(other)
	}); err != nil {
		return err
	}
	cancel()
	return <-ended
}

type copier struct{ client.Client }

func (c *copier) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, request.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if secret.Labels["copy"] != "yes" {
		return ctrl.Result{}, nil
	}
	const finalizer = "clients.test/copied"
	if !secret.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(secret, finalizer) {
			return ctrl.Result{}, c.Update(ctx, secret)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(secret, finalizer) {
		if err := c.Update(ctx, secret); err != nil {
			return ctrl.Result{}, err
		}
	}
	copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: secret.Name + "-copy", Namespace: secret.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.Client, copied, func() error {
		copied.Data = map[string]string{}
		for key, value := range secret.Data {
			copied.Data[key] = string(value)
		}
		return controllerutil.SetControllerReference(secret, copied, c.Scheme())
	})
	return ctrl.Result{}, err
}
