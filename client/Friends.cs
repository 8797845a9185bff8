// Types are internal until someone outside needs them; these assemblies of the project do.
using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("kv")]
[assembly: InternalsVisibleTo("KvCluster.AdminConsole")]
[assembly: InternalsVisibleTo("kv-router")]
[assembly: InternalsVisibleTo("kv-local")]
[assembly: InternalsVisibleTo("KvCluster.Tests")]
[assembly: InternalsVisibleTo("KvCluster.Simulation")]
[assembly: InternalsVisibleTo("KvCluster.ClusterTests")]
[assembly: InternalsVisibleTo("KvCluster.Benchmarks")]
