namespace KvCluster.AdminConsole;

/// <summary>What a request to the console must show.</summary>
internal enum Access
{
    /// <summary>Nothing.</summary>
    Open,

    /// <summary>The token, where the cluster shows keys only to clients that it knows.</summary>
    Keys,

    /// <summary>The token; without one in the configuration it is off.</summary>
    Change,
}
