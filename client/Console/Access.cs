namespace KvCluster.AdminConsole;

/// <summary>What a request to the console must present.</summary>
internal enum Access
{
    /// <summary>Nothing.</summary>
    Open,

    /// <summary>The token, if the cluster shows keys only to clients that it knows.</summary>
    Keys,

    /// <summary>The token. If none is configured, changes are disabled.</summary>
    Change,
}
