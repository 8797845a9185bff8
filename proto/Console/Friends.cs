// Types are internal until someone outside needs them; these assemblies of the project do.
using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("kv-node")]
[assembly: InternalsVisibleTo("kv-router")]
[assembly: InternalsVisibleTo("KvCluster.Tests")]
