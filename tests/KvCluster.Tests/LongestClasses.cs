[assembly: TestCollectionOrderer("KvCluster.Tests.LongestClasses", "KvCluster.Tests")]

namespace KvCluster.Tests;

/// <summary>The classes whose tests of every change take ten seconds and more.</summary>
public sealed class LongestClasses() : LongestFirst(All)
{
    public static readonly Type[] All =
    [
        typeof(Deploy.ChartTests), typeof(Node.CoordinatorRecoveryTests), typeof(Storage.Inspection.StorageCommandTests), typeof(Node.ReadModeTests),
        typeof(Cli.CommandTests), typeof(Router.RouterHostTests), typeof(Client.Recipes.KvQueueTests), typeof(Node.NodeHostTests),
        typeof(Node.Watching.WatchApiTests), typeof(Client.Recipes.KvUpdatesTests), typeof(ServiceDefaults.NodeStartTests),
        typeof(Node.Watching.WatchBeginningTests),
    ];
}
