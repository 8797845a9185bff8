// A faceted browser over the packages of a Linux distribution: see README.md beside this project.
using KvCluster.Client;
using KvCluster.Examples;

if (args is not ([] or [_] or ["load", _, _] or ["load", _, _, _]))
{
    Console.Error.WriteLine("Usage: FacetBrowser [ENDPOINT]  or  FacetBrowser load PACKAGES.TSV TAGS.TSV [ENDPOINT]");
    return 2;
}
var isLoad = args is ["load", ..];
await using var client = new KvClient(args.ElementAtOrDefault(isLoad ? 3 : 0) ?? "http://127.0.0.1:7400");
var catalog = new Catalog(client);
try
{
    if (isLoad)
        await catalog.LoadAsync(args[1], args[2], Console.Out);
    else
        await new Browser(catalog, Console.In, Console.Out).RunAsync();
    return 0;
}
catch (Exception failure) when (failure is KvException or IOException)
{
    Console.Error.WriteLine(failure.Message);
    return 1;
}
