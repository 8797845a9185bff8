[assembly: TestCollectionOrderer("KvCluster.Tests.LongestClasses", "KvCluster.Tests")]

namespace KvCluster.Tests;

/// <summary>The classes whose tests of every change take ten seconds and more.</summary>
public sealed class LongestClasses() : LongestFirst(All)
{
    public static readonly Type[] All =
    [
        typeof(Chart.ChartTests), typeof(Node.CoordinatorRecoveryTests), typeof(Storage.Inspection.StorageCommandTests), typeof(Client.OperatorCallTests),
        typeof(Cli.CommandTests), typeof(Node.ReadModeTests), typeof(Router.RouterHostTests), typeof(Node.Watching.WatchApiTests),
        typeof(Client.Recipes.KvQueueTests), typeof(Client.Recipes.KvUpdatesTests), typeof(Node.Watching.WatchBeginningTests), typeof(Node.NodeHostTests),
        typeof(ServiceDefaults.NodeStartTests), typeof(Client.Recipes.KvCacheTests),
    ];
}
