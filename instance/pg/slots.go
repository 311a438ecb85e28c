package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// slotPrefix begins the names of the slots that are ours to drop.
const slotPrefix = "pg_operator_"

// slotForm finds them.
const slotForm = "^" + slotPrefix + "[0-9]+$"

// SlotName is the name of the replication slot of the instance with an ordinal.
func SlotName(ordinal int32) string { return fmt.Sprintf("%s%d", slotPrefix, ordinal) }

// provisionSlots makes the wanted slots and drops those of instances that are gone, and those that PostgreSQL gave up:
// their replica has to be cloned, and needs a new one for it. A slot holds no log before its replica first connects.
func provisionSlots(ctx context.Context, conn *pgx.Conn, wanted []string) error {
	return makeSlots(ctx, conn, wanted, "wal_status = 'lost'")
}

// ReplicaSlots makes the wanted slots on a replica, for the day on which it becomes the primary: the others then stream
// from it at once. Nobody uses them before, so they must not hold log: one that does is from an earlier role, and is
// made anew.
func ReplicaSlots(ctx context.Context, conn *pgx.Conn, wanted []string) error {
	return makeSlots(ctx, conn, wanted, "restart_lsn IS NOT NULL")
}

// makeSlots drops our slots that are not wanted or spoiled, and makes those that are missing.
func makeSlots(ctx context.Context, conn *pgx.Conn, wanted []string, spoiled string) error {
	if wanted == nil {
		wanted = []string{}
	}
	_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE slot_type = 'physical' AND NOT active AND slot_name ~ $1
		AND (`+spoiled+` OR NOT slot_name = ANY ($2))`, slotForm, wanted)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_create_physical_replication_slot(wanted) FROM unnest($1::name[]) AS wanted
		WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = wanted)`, wanted)
	return err
}

// SlotsDue tells whether the slots are not as provisionSlots would leave them.
func SlotsDue(ctx context.Context, conn *pgx.Conn, wanted []string) (bool, error) {
	var due bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active
			AND slot_name ~ $1 AND (wal_status = 'lost' OR NOT slot_name = ANY ($2)))
		OR EXISTS (SELECT FROM unnest($2::name[]) AS wanted
			WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = wanted))`,
		slotForm, wanted).Scan(&due)
	return due, err
}
