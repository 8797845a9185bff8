using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.V1;

namespace KvCluster;

/// <summary>The ids in messages and records, which hold them as bare numbers.</summary>
internal static class WireIds
{
    extension(IOfShard message)
    {
        /// <summary>The shard that it is about.</summary>
        public ShardId ShardId
        {
            get => new(message.Shard);
            set => message.Shard = value.Value;
        }
    }

    extension(IOfNode message)
    {
        /// <summary>The node that it is about, or comes from.</summary>
        public NodeId NodeId
        {
            get => new(message.Node);
            set => message.Node = value.Value;
        }
    }

    extension(IOfReplica message)
    {
        /// <summary>The replica that it is about.</summary>
        public ReplicaId ReplicaId
        {
            get => new(message.Replica);
            set => message.Replica = value.Value;
        }
    }

    extension(Frame frame)
    {
        /// <summary>The replica that sends it.</summary>
        public ReplicaId SenderId
        {
            get => new(frame.Sender);
            set => frame.Sender = value.Value;
        }

        /// <summary>The replica that it is for.</summary>
        public ReplicaId ReceiverId
        {
            get => new(frame.Receiver);
            set => frame.Receiver = value.Value;
        }
    }

    extension(ShardRecord record)
    {
        /// <summary>Orders copies of the record: by the recovery of which it is, and then by its generation.</summary>
        public (ulong Recovery, ulong Generation) Rank => (record.Recovery, record.Generation);

        /// <summary>The replica that leads the record's epoch.</summary>
        public ReplicaId LeaderId
        {
            get => new(record.Leader);
            set => record.Leader = value.Value;
        }

        /// <summary>Whether the record lists the replica as removed.</summary>
        public bool HasRemoved(ReplicaId replica) => record.Removed.Contains(replica.Value);
    }

    extension(MayStopRequest request)
    {
        /// <summary>The shards whose voters want to stop.</summary>
        public IEnumerable<ShardId> ShardIds => request.Shards.Select(static shard => new ShardId(shard));
    }

    extension(TransferResponse response)
    {
        /// <summary>The node that leads now.</summary>
        public NodeId LeaderId
        {
            get => new(response.Leader);
            set => response.Leader = value.Value;
        }
    }

    extension(ShardRoute route)
    {
        /// <summary>The node that leads the shard, as far as is known.</summary>
        public NodeId LeaderId
        {
            get => new(route.Leader);
            set => route.Leader = value.Value;
        }
    }

    extension(PlacementRecord record)
    {
        /// <summary>The nodes that should have no replica.</summary>
        public IEnumerable<NodeId> LeavingIds => record.Leaving.Select(static node => new NodeId(node));
    }

    extension(PlaceRequest request)
    {
        /// <summary>The nodes that are to leave.</summary>
        public IEnumerable<NodeId> LeaveIds => request.Leave.Select(static node => new NodeId(node));

        /// <summary>The nodes that may have replicas again.</summary>
        public IEnumerable<NodeId> StayIds => request.Stay.Select(static node => new NodeId(node));
    }
}

/// <summary>A message or record with a shard.</summary>
internal interface IOfShard
{
    /// <summary>The shard's number.</summary>
    uint Shard { get; set; }
}

/// <summary>A message or record with a node.</summary>
internal interface IOfNode
{
    /// <summary>The node's number.</summary>
    uint Node { get; set; }
}

/// <summary>A message or record with a replica.</summary>
internal interface IOfReplica
{
    /// <summary>The replica's number.</summary>
    ulong Replica { get; set; }
}
