//! The roles and bindings that every Kubernetes server starts with, as a table that [`super::defaults`] reads.
//!
//! `clusterrole NAME [into=X] [from=X]` and `role NAMESPACE/NAME` open a role; `~x` stands for the role of a built-in controller,
//! which is bound to its ServiceAccount in `kube-system`. Their rules follow, indented: `VERBS | GROUPS | RESOURCES [| NAMES]` or
//! `VERBS @ PATHS`; READ is get, list and watch; WRITE is create, delete, deletecollection, patch and update.
//! `bind [NAMESPACE/]NAME [role=NAME] [kind=Role] SUBJECTS` binds the role of the same or the given name.

pub(crate) const TABLE: &str = r"
clusterrole admin from=admin
clusterrole cluster-admin
  * | * | *
  * @ *
clusterrole edit into=admin from=edit
clusterrole system:aggregate-to-admin into=admin
  create | authorization.k8s.io | localsubjectaccessreviews
  READ,WRITE | rbac.authorization.k8s.io | rolebindings,roles
clusterrole system:aggregate-to-edit into=edit
  READ | core | pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy
  impersonate | core | serviceaccounts
  WRITE | core | pods,pods/attach,pods/exec,pods/portforward,pods/proxy
  create | core | pods/eviction
  WRITE | core | configmaps,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,serviceaccounts,services,services/proxy
  create | core | serviceaccounts/token
  WRITE | core,events.k8s.io | events
  WRITE | apps | daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,statefulsets,statefulsets/scale
  WRITE | autoscaling | horizontalpodautoscalers
  WRITE | batch | cronjobs,jobs
  WRITE | extensions | daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,networkpolicies,replicasets,replicasets/scale,replicationcontrollers/scale
  WRITE | policy | poddisruptionbudgets
  WRITE | networking.k8s.io | ingresses,networkpolicies
  READ,WRITE | coordination.k8s.io | leases
  WRITE | resource.k8s.io | resourceclaims,resourceclaimtemplates
clusterrole system:aggregate-to-view into=view
  READ | core | configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status
  READ | core | bindings,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,resourcequotas,resourcequotas/status
  READ | core | namespaces
  READ | core,events.k8s.io | events
  READ | discovery.k8s.io | endpointslices
  READ | apps | controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status
  READ | autoscaling | horizontalpodautoscalers,horizontalpodautoscalers/status
  READ | batch | cronjobs,cronjobs/status,jobs,jobs/status
  READ | extensions | daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,ingresses/status,networkpolicies,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale
  READ | policy | poddisruptionbudgets,poddisruptionbudgets/status
  READ | networking.k8s.io | ingresses,ingresses/status,networkpolicies
  READ | resource.k8s.io | resourceclaims,resourceclaims/status,resourceclaimtemplates
clusterrole system:auth-delegator
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
clusterrole system:basic-user
  create | authorization.k8s.io | selfsubjectaccessreviews,selfsubjectrulesreviews
  create | authentication.k8s.io | selfsubjectreviews
clusterrole system:certificates.k8s.io:certificatesigningrequests:nodeclient
  create | certificates.k8s.io | certificatesigningrequests/nodeclient
clusterrole system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
  create | certificates.k8s.io | certificatesigningrequests/selfnodeclient
clusterrole system:certificates.k8s.io:kube-apiserver-client-approver
  approve | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client
clusterrole system:certificates.k8s.io:kube-apiserver-client-kubelet-approver
  approve | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client-kubelet
clusterrole system:certificates.k8s.io:kubelet-serving-approver
  approve | certificates.k8s.io | signers | kubernetes.io/kubelet-serving
clusterrole system:certificates.k8s.io:legacy-unknown-approver
  approve | certificates.k8s.io | signers | kubernetes.io/legacy-unknown
clusterrole system:cluster-trust-bundle-discovery
  READ | certificates.k8s.io | clustertrustbundles
clusterrole system:discovery
  get @ /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/
clusterrole system:heapster
  READ | core | events,namespaces,nodes,pods
  READ | extensions | deployments
clusterrole system:kube-aggregator
  READ | core | endpoints,services
clusterrole system:kube-controller-manager
  create,patch,update | core,events.k8s.io | events
  create | coordination.k8s.io | leases
  get,update | coordination.k8s.io | leases | kube-controller-manager
  create | core | secrets,serviceaccounts
  delete | core | secrets
  get | core | configmaps,namespaces,secrets,serviceaccounts
  update | core | secrets,serviceaccounts
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
  list,watch | * | *
  create | core | serviceaccounts/token
clusterrole system:kube-dns
  list,watch | core | endpoints,services
clusterrole system:kube-scheduler
  create,patch,update | core,events.k8s.io | events
  create | coordination.k8s.io | leases
  READ,update | coordination.k8s.io | leases | kube-scheduler
  READ,WRITE | coordination.k8s.io | leasecandidates
  READ | core | nodes
  READ,delete | core | pods
  create | core | bindings,pods/binding
  patch,update | core | pods/status
  READ | core | replicationcontrollers,services
  READ | apps,extensions | replicasets
  READ | apps | statefulsets
  READ | policy | poddisruptionbudgets
  READ | core | persistentvolumeclaims,persistentvolumes
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
  READ | storage.k8s.io | csinodes
  READ | storage.k8s.io | volumeattachments
  READ | core | namespaces
  READ | storage.k8s.io | csidrivers
  READ | storage.k8s.io | csistoragecapacities
  READ | resource.k8s.io | deviceclasses
  READ,patch,update | resource.k8s.io | resourceclaims
  READ,patch,update | resource.k8s.io | resourceclaims/status
  update | core | pods/finalizers
  READ | resource.k8s.io | resourceslices
  create,delete | resource.k8s.io | resourceclaims
  READ | resource.k8s.io | devicetaintrules
  patch,update | resource.k8s.io | resourceclaims/binding
clusterrole system:kubelet-api-admin
  READ | core | nodes
  proxy | core | nodes
  * | core | nodes/log,nodes/metrics,nodes/proxy,nodes/stats
  * | core | nodes/configz,nodes/healthz,nodes/pods
clusterrole system:monitoring
  get @ /flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz
  get | core | nodes/metrics
clusterrole system:node
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | localsubjectaccessreviews,subjectaccessreviews
  READ | core | services
  READ,create | core | nodes
  patch,update | core | nodes/status
  patch,update | core | nodes
  create,patch,update | core,events.k8s.io | events
  READ | core | pods
  create,delete | core | pods
  patch,update | core | pods/status
  create | core | pods/eviction
  READ | core | configmaps,secrets
  get | core | persistentvolumeclaims,persistentvolumes
  get | core | endpoints
  READ,create | certificates.k8s.io | certificatesigningrequests
  create,delete,get,patch,update | coordination.k8s.io | leases
  get | storage.k8s.io | volumeattachments
  create | core | serviceaccounts/token
  get,patch,update | core | persistentvolumeclaims/status
  READ | storage.k8s.io | csidrivers
  create,delete,get,patch,update | storage.k8s.io | csinodes
  READ | node.k8s.io | runtimeclasses
  get | resource.k8s.io | resourceclaims
  deletecollection | resource.k8s.io | resourceslices
  READ | certificates.k8s.io | clustertrustbundles
  get | core | serviceaccounts
  READ,create | certificates.k8s.io | podcertificaterequests
clusterrole system:node-bootstrapper
  READ,create | certificates.k8s.io | certificatesigningrequests
clusterrole system:node-problem-detector
  get | core | nodes
  patch | core | nodes/status
  create,patch,update | core,events.k8s.io | events
clusterrole system:node-proxier
  list,watch | core | endpoints,services
  READ | core | nodes
  create,patch,update | core,events.k8s.io | events
  list,watch | networking.k8s.io | servicecidrs
  list,watch | discovery.k8s.io | endpointslices
clusterrole system:persistent-volume-provisioner
  READ,create,delete | core | persistentvolumes
  READ,update | core | persistentvolumeclaims
  READ | storage.k8s.io | storageclasses
  watch | core | events
  create,patch,update | core,events.k8s.io | events
clusterrole system:public-info-viewer
  get @ /healthz /livez /readyz /version /version/
clusterrole system:service-account-issuer-discovery
  get @ /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/
clusterrole system:volume-scheduler
  READ,patch,update | core | persistentvolumes
  READ | storage.k8s.io | storageclasses
  READ,patch,update | core | persistentvolumeclaims
clusterrole view into=edit from=view
clusterrole ~attachdetach-controller
  list,watch | core | persistentvolumeclaims,persistentvolumes
  READ | core | nodes
  patch,update | core | nodes/status
  list,watch | core | pods
  create,patch,update | core,events.k8s.io | events
  READ,create,delete | storage.k8s.io | volumeattachments
  READ | storage.k8s.io | csidrivers
  READ | storage.k8s.io | csinodes
clusterrole ~certificate-controller
  READ,delete | certificates.k8s.io | certificatesigningrequests
  update | certificates.k8s.io | certificatesigningrequests/approval,certificatesigningrequests/status
  approve | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client-kubelet
  sign | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client,kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kubelet-serving,kubernetes.io/legacy-unknown
  create | authorization.k8s.io | subjectaccessreviews
  create,patch,update | core,events.k8s.io | events
clusterrole ~clusterrole-aggregation-controller
  READ,escalate,patch,update | rbac.authorization.k8s.io | clusterroles
clusterrole ~cronjob-controller
  READ,update | batch | cronjobs
  READ,create,delete,patch,update | batch | jobs
  update | batch | cronjobs/status
  update | batch | cronjobs/finalizers
  delete,list,watch | core | pods
  create,patch,update | core,events.k8s.io | events
clusterrole ~daemon-set-controller
  READ | apps,extensions | daemonsets
  update | apps,extensions | daemonsets/status
  update | apps,extensions | daemonsets/finalizers
  list,watch | core | nodes
  create,delete,list,patch,watch | core | pods
  create | core | pods/binding
  READ,create,delete,patch,update | apps | controllerrevisions
  create,patch,update | core,events.k8s.io | events
clusterrole ~deployment-controller
  READ,update | apps,extensions | deployments
  update | apps,extensions | deployments/status
  update | apps,extensions | deployments/finalizers
  READ,create,delete,patch,update | apps,extensions | replicasets
  READ,update | core | pods
  create,patch,update | core,events.k8s.io | events
clusterrole ~device-taint-eviction-controller
  READ,delete | core | pods
  patch,update | core | pods/status
  READ | resource.k8s.io | resourceclaims
  READ | resource.k8s.io | resourceslices
  READ | resource.k8s.io | deviceclasses
  create,patch,update | core,events.k8s.io | events
  patch,update | resource.k8s.io | devicetaintrules/status
  READ | resource.k8s.io | devicetaintrules
clusterrole ~disruption-controller
  READ | apps,extensions | deployments
  READ | apps,extensions | replicasets
  READ | core | replicationcontrollers
  READ | policy | poddisruptionbudgets
  READ | apps | statefulsets
  update | policy | poddisruptionbudgets/status
  patch,update | core | pods/status
  get | * | */scale
  create,patch,update | core,events.k8s.io | events
clusterrole ~endpoint-controller
  READ | core | pods,services
  READ,create,delete,update | core | endpoints
  create | core | endpoints/restricted
  create,patch,update | core,events.k8s.io | events
clusterrole ~endpointslice-controller
  READ | core | nodes,pods,services
  update | core | services/finalizers
  READ,create,delete,update | discovery.k8s.io | endpointslices
  create,patch,update | core,events.k8s.io | events
clusterrole ~endpointslicemirroring-controller
  READ | core | endpoints,services
  update | core | services/finalizers
  update | core | endpoints/finalizers
  READ,create,delete,update | discovery.k8s.io | endpointslices
  create,patch,update | core,events.k8s.io | events
clusterrole ~ephemeral-volume-controller
  READ | core | pods
  update | core | pods/finalizers
  READ,create | core | persistentvolumeclaims
  create,patch,update | core,events.k8s.io | events
clusterrole ~expand-controller
  READ,patch,update | core | persistentvolumes
  patch,update | core | persistentvolumeclaims/status
  READ | core | persistentvolumeclaims
  create,patch,update | core,events.k8s.io | events
clusterrole ~generic-garbage-collector
  READ,delete,patch,update | * | *
  create,patch,update | core,events.k8s.io | events
clusterrole ~horizontal-pod-autoscaler
  READ | autoscaling | horizontalpodautoscalers
  update | autoscaling | horizontalpodautoscalers/status
  get,update | * | */scale
  list,watch | core | pods
  list,watch | metrics.k8s.io | pods
  READ | custom.metrics.k8s.io | *
  READ | external.metrics.k8s.io | *
  create,patch,update | core,events.k8s.io | events
clusterrole ~job-controller
  READ,patch,update | batch | jobs
  update | batch | jobs/status
  update | batch | jobs/finalizers
  create,delete,list,patch,watch | core | pods
  create,patch,update | core,events.k8s.io | events
clusterrole ~kube-apiserver-serving-clustertrustbundle-publisher
  attest | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-serving
  create,delete,list,update,watch | certificates.k8s.io | clustertrustbundles
  create,patch,update | core,events.k8s.io | events
clusterrole ~legacy-service-account-token-cleaner
  get | core | configmaps | kube-apiserver-legacy-service-account-token-tracking
  delete,patch | core | secrets
clusterrole ~namespace-controller
  READ,delete | core | namespaces
  update | core | namespaces/finalize,namespaces/status
  READ,delete,deletecollection | * | *
clusterrole ~node-controller
  READ,delete,patch,update | core | nodes
  patch,update | core | nodes/status
  patch,update | core | pods/status
  READ,delete | core | pods
  READ | coordination.k8s.io | leases
  create,patch,update | core,events.k8s.io | events
clusterrole ~persistent-volume-binder
  READ,create,delete,update | core | persistentvolumes
  update | core | persistentvolumes/status
  READ,update | core | persistentvolumeclaims
  update | core | persistentvolumeclaims/status
  READ,create,delete | core | pods
  READ | storage.k8s.io | storageclasses
  list,watch | core | nodes
  create,patch,update | core,events.k8s.io | events
  watch | core | events
clusterrole ~pod-garbage-collector
  delete,list,watch | core | pods
  READ | core | nodes
  patch | core | pods/status
clusterrole ~podcertificaterequestcleaner
  READ,delete | certificates.k8s.io | podcertificaterequests
clusterrole ~pv-protection-controller
  READ,update | core | persistentvolumes
  create,patch,update | core,events.k8s.io | events
clusterrole ~pvc-protection-controller
  READ,update | core | persistentvolumeclaims
  update | core | persistentvolumeclaims/status
  READ | core | pods
  create,patch,update | core,events.k8s.io | events
clusterrole ~replicaset-controller
  READ,update | apps,extensions | replicasets
  update | apps,extensions | replicasets/status
  update | apps,extensions | replicasets/finalizers
  create,delete,list,patch,watch | core | pods
  create,patch,update | core,events.k8s.io | events
clusterrole ~replication-controller
  READ,update | core | replicationcontrollers
  update | core | replicationcontrollers/status
  update | core | replicationcontrollers/finalizers
  create,delete,list,patch,watch | core | pods
  create,patch,update | core,events.k8s.io | events
clusterrole ~resource-claim-controller
  READ | core | pods
  update | core | pods/finalizers
  READ,create,delete | resource.k8s.io | resourceclaims
  patch,update | resource.k8s.io | resourceclaims,resourceclaims/status
  patch,update | core | pods/status
  create,patch,update | core,events.k8s.io | events
  patch,update | resource.k8s.io | resourceclaims/binding
clusterrole ~resourcequota-controller
  list,watch | * | *
  update | core | resourcequotas/status
  create,patch,update | core,events.k8s.io | events
clusterrole ~root-ca-cert-publisher
  create,update | core | configmaps
  create,patch,update | core,events.k8s.io | events
clusterrole ~route-controller
  list,watch | core | nodes
  patch | core | nodes/status
  create,patch,update | core,events.k8s.io | events
clusterrole ~selinux-warning-controller
  create,patch,update | core,events.k8s.io | events
  READ | core | persistentvolumes
  READ | core | persistentvolumeclaims
  READ | core | pods
  READ | storage.k8s.io | csidrivers
clusterrole ~service-account-controller
  create | core | serviceaccounts
  create,patch,update | core,events.k8s.io | events
clusterrole ~service-cidrs-controller
  READ,patch,update | networking.k8s.io | servicecidrs
  patch,update | networking.k8s.io | servicecidrs/finalizers
  patch,update | networking.k8s.io | servicecidrs/status
  READ | networking.k8s.io | ipaddresses
  create,patch,update | core,events.k8s.io | events
clusterrole ~service-controller
  READ | core | services
  patch,update | core | services/status
  list,watch | core | nodes
  create,patch,update | core,events.k8s.io | events
clusterrole ~statefulset-controller
  list,watch | core | pods
  READ | apps | statefulsets
  update | apps | statefulsets/status
  update | apps | statefulsets/finalizers
  create,delete,get,patch,update | core | pods
  READ,create,delete,patch,update | apps | controllerrevisions
  READ,create | core | persistentvolumeclaims
  delete,update | core | persistentvolumeclaims
  update | core | pods/finalizers
  create,patch,update | core,events.k8s.io | events
clusterrole ~storage-version-migrator-controller
  list,patch | * | *
  get | apiextensions.k8s.io | customresourcedefinitions
  patch | apiextensions.k8s.io | customresourcedefinitions/status
  update | storagemigration.k8s.io | storageversionmigrations/status
clusterrole ~ttl-after-finished-controller
  READ,delete | batch | jobs
  create,patch,update | core,events.k8s.io | events
clusterrole ~ttl-controller
  list,patch,update,watch | core | nodes
  create,patch,update | core,events.k8s.io | events
clusterrole ~validatingadmissionpolicy-status-controller
  READ | admissionregistration.k8s.io | validatingadmissionpolicies
  get,patch,update | admissionregistration.k8s.io | validatingadmissionpolicies/status
  create,patch,update | core,events.k8s.io | events
clusterrole ~volumeattributesclass-protection-controller
  READ | core | persistentvolumeclaims
  READ | core | persistentvolumes
  READ,update | storage.k8s.io | volumeattributesclasses
  create,patch,update | core,events.k8s.io | events
role kube-public/system:controller:bootstrap-signer
  READ | core | configmaps
  update | core | configmaps | cluster-info
  create,patch,update | core,events.k8s.io | events
role kube-system/extension-apiserver-authentication-reader
  READ | core | configmaps | extension-apiserver-authentication
role kube-system/system::leader-locking-kube-controller-manager
  READ,create,update | coordination.k8s.io | leases
  READ,create,update | coordination.k8s.io | leasecandidates
role kube-system/system::leader-locking-kube-scheduler
  READ,create,update | coordination.k8s.io | leases
  READ,create,update | coordination.k8s.io | leasecandidates
role kube-system/system:controller:bootstrap-signer
  READ | core | secrets
role kube-system/system:controller:cloud-provider
  READ,create | core | configmaps
role kube-system/system:controller:token-cleaner
  READ,delete | core | secrets
  create,patch,update | core,events.k8s.io | events
bind cluster-admin group=system:masters
bind system:basic-user group=system:authenticated
bind system:cluster-trust-bundle-discovery group=system:serviceaccounts
bind system:discovery group=system:authenticated
bind system:kube-controller-manager user=system:kube-controller-manager
bind system:kube-dns account=kube-system/kube-dns
bind system:kube-scheduler user=system:kube-scheduler
bind system:monitoring group=system:monitoring
bind system:node
bind system:node-proxier user=system:kube-proxy
bind system:public-info-viewer group=system:authenticated group=system:unauthenticated
bind system:service-account-issuer-discovery group=system:serviceaccounts
bind system:volume-scheduler user=system:kube-scheduler
bind kube-public/system:controller:bootstrap-signer kind=Role account=kube-system/bootstrap-signer
bind kube-system/system::extension-apiserver-authentication-reader role=extension-apiserver-authentication-reader kind=Role user=system:kube-controller-manager user=system:kube-scheduler
bind kube-system/system::leader-locking-kube-controller-manager kind=Role user=system:kube-controller-manager account=kube-system/kube-controller-manager account=kube-system/leader-election-controller
bind kube-system/system::leader-locking-kube-scheduler kind=Role user=system:kube-scheduler account=kube-system/kube-scheduler
bind kube-system/system:controller:bootstrap-signer kind=Role account=kube-system/bootstrap-signer
bind kube-system/system:controller:cloud-provider kind=Role account=kube-system/cloud-provider
bind kube-system/system:controller:token-cleaner kind=Role account=kube-system/token-cleaner
";
