// Types are internal until someone outside needs them; these assemblies of the project do.
using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("KvCluster.Tests")]
