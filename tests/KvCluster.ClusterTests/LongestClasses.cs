[assembly: TestCollectionOrderer("KvCluster.ClusterTests.LongestClasses", "KvCluster.ClusterTests")]

namespace KvCluster.ClusterTests;

/// <summary>The classes whose tests of every change take ten seconds and more.</summary>
public sealed class LongestClasses()
    : LongestFirst(typeof(Faults.NodeFaultTests), typeof(ProcessClusterTests), typeof(Faults.CancellingCallerTests));
