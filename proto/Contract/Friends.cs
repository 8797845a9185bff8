// Types are internal until someone outside needs them; these assemblies of the project do.
using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("KvCluster.Replication")]
[assembly: InternalsVisibleTo("KvCluster.Client")]
[assembly: InternalsVisibleTo("kv")]
[assembly: InternalsVisibleTo("KvCluster.AdminConsole")]
[assembly: InternalsVisibleTo("KvCluster.Serving")]
[assembly: InternalsVisibleTo("kv-node")]
[assembly: InternalsVisibleTo("kv-router")]
[assembly: InternalsVisibleTo("kv-local")]
[assembly: InternalsVisibleTo("KvCluster.Tests")]
[assembly: InternalsVisibleTo("KvCluster.Simulation")]
[assembly: InternalsVisibleTo("KvCluster.ClusterTests")]
[assembly: InternalsVisibleTo("KvCluster.Benchmarks")]
